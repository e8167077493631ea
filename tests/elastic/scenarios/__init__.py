"""The reference's scenarios, with real training."""
