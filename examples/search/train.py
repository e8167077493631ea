"""One trial: a small network on scikit-learn's digits, which reports its accuracy after each epoch."""

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from shoal import report

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--width", type=int, required=True)
parser.add_argument("--alpha", type=float, required=True)
parser.add_argument("--epochs", type=int, default=27)
options = parser.parse_args()

images, labels = load_digits(return_X_y=True)
train_x, test_x, train_y, test_y = train_test_split(images / 16, labels, test_size=0.3, random_state=0)
model = MLPClassifier(
    (options.width,), learning_rate_init=options.lr, alpha=options.alpha, batch_size=64, random_state=0
)
for epoch in range(1, options.epochs + 1):
    model.partial_fit(train_x, train_y, classes=np.unique(labels))
    report(accuracy=model.score(test_x, test_y), step=epoch)
