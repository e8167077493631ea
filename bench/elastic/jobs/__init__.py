"""How a job of each system is started, enlarged, harmed and ended: one class per system."""
