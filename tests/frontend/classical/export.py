"""Writes models/: what scikit-learn and skl2onnx give for small models of the data that scikit-learn ships.

Run: `python tests/frontend/classical/export.py` where both are installed; the tests need neither.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from skl2onnx import to_onnx
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

FOLDER = Path(__file__).parent / "models"
PLAIN = {"zipmap": False}


def main() -> None:
    iris, cancer, diabetes = (load(return_X_y=True) for load in (load_iris, load_breast_cancer, load_diabetes))
    named = iris[0], np.array(["setosa", "versicolor", "virginica"])[iris[1]]
    numbered = cancer[0], np.where(cancer[1], 13, 3)
    for name, model, (x, y), options in (
        ("iris_rf", RandomForestClassifier(20, random_state=0), iris, PLAIN),
        ("iris_gb", GradientBoostingClassifier(n_estimators=10), iris, PLAIN),
        ("labels_rf", RandomForestClassifier(20, random_state=0), numbered, PLAIN),
        ("reg_gb", GradientBoostingRegressor(n_estimators=10), diabetes, None),
        ("cancer_svcp", make_pipeline(StandardScaler(), SVC(probability=True)), cancer, PLAIN),
        ("iris_lr", make_pipeline(StandardScaler(), LogisticRegression()), iris, None),
        ("strings_dt", DecisionTreeClassifier(), named, None),
    ):
        x = x.astype(np.float32)
        model.fit(x, y)
        (FOLDER / f"{name}.onnx").write_bytes(to_onnx(model, x[:1], options=options).SerializeToString())


if __name__ == "__main__":
    main()
