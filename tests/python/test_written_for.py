# SPDX-License-Identifier: Apache-2.0
"""Which TensorFlow a script was written for, by its source, with the names of the real one."""

import importlib
import importlib.util
import textwrap

import pytest

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("no TensorFlow here (tools/setup.sh frameworks)", allow_module_level=True)

from poseidon.auto.tf1 import written_for  # noqa: E402


@pytest.fixture(name="look", scope="module")
def fixture_look():
    """What is found in a script."""
    import tensorflow  # takes seconds
    from tensorflow.compat import v1

    def go(path):
        importlib.invalidate_caches()  # files were written a moment ago
        return written_for.find_version_1([str(path)], tensorflow, v1)

    return go


def write(directory, **sources):
    for name, text in sources.items():
        path = directory / (name.replace("__", "/") + ".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return directory / "train.py"


TF = "import tensorflow as tf\n"
OLD = {
    "flags": (TF + "FLAGS = tf.app.flags.FLAGS\n", "tf.app.flags"),
    "session": (TF + "with tf.Session() as session:\n    pass\n", "tf.Session"),
    "optimizer in a function": (
        TF + "def main():\n    return tf.train.GradientDescentOptimizer(0.1)\nmain()\n",
        "tf.train.GradientDescentOptimizer"),
    "another name": ("import tensorflow as flow\nx = flow.placeholder('float')\n", "tf.placeholder"),
    "no other name": ("import tensorflow\nx = tensorflow.placeholder('float')\n", "tf.placeholder"),
    "parts of it": ("from tensorflow import flags, train\nflags.DEFINE_string('a', 'b', 'c')\n",
                    "tf.flags"),
    "a part that both have": ("from tensorflow import train\ntrain.AdamOptimizer()\n",
                              "tf.train.AdamOptimizer"),
    "contrib": (TF + "slim = tf.contrib.slim\n", "tf.contrib.slim"),
    "contrib as a module": ("import tensorflow.contrib.slim as slim\n", "tf.contrib.slim"),
    "the tutorial's data": (
        "from tensorflow.examples.tutorials.mnist import input_data\n", "tf.examples.tutorials"),
    "only the last line": (TF + "if __name__ == '__main__':\n    tf.app.run()\n", "tf.app.run"),
    "a logger of 1.15": (TF + "tf.compat.v1.logging.set_verbosity('ERROR')\n"
                         "def main():\n    return tf.placeholder('float')\nmain()\n", "tf.placeholder"),
    "a hook": (TF + "class Hook(tf.train.SessionRunHook):\n    pass\n", "tf.train.SessionRunHook"),
    "a scaler beside it": (TF + "def main(scaler):\n    scaler.fit([1])\n    tf.Session()\nmain(1)\n",
                           "tf.Session"),
    "what is certain wins": (TF + "@tf.function\ndef f():\n    pass\nFLAGS = tf.app.flags.FLAGS\n",
                             "tf.app.flags"),
}
NEW = {
    "compat": "import tensorflow.compat.v1 as tf\ntf.app.flags.FLAGS\ntf.Session()\n",
    "compat from": "from tensorflow.compat import v1 as tf\ntf.Session()\n",
    "compat in full": TF + "tf.compat.v1.Session()\ntf.compat.v1.disable_v2_behavior()\n",
    "compat later": TF + "tf = tf.compat.v1\ntf.Session()\n",
    "compat if it is there": "try:\n    import tensorflow.compat.v1 as tf\n"
                             "except ImportError:\n    import tensorflow as tf\ntf.Session()\n",
    "asks the version": TF + "if tf.__version__.startswith('1'):\n    tf.set_random_seed(1)\n"
                             "else:\n    tf.random.set_seed(1)\n",
    "asks the version by name": TF + "OLD = int(tf.__version__[0]) < 2\nif OLD:\n    tf.Session()\n",
    "asks for a name": TF + "config = tf.ConfigProto() if hasattr(tf, 'ConfigProto') else None\n",
    "tries": TF + "try:\n    tf.enable_eager_execution()\nexcept AttributeError:\n    pass\n",
    "a function nobody calls": TF + "def limit_memory():\n    tf.Session(config=tf.ConfigProto())\n",
    "Keras, and a function of old": (
        TF + "def limit_memory():\n    tf.Session()\nmodel = tf.keras.Sequential()\n"
        "model.fit([1], [1])\nif len(model.layers) > 9:\n    limit_memory()\n"),
    "tapes, and a function of old": (
        TF + "def old():\n    tf.Session()\nwith tf.GradientTape() as tape:\n    print(old)\n"),
    "names of version 2 alone": (
        TF + "def old():\n    tf.Session()\ntf.optimizers.Adam()\nprint(old)\n"),
    "Keras": "from tensorflow import keras\nkeras.Sequential().fit([1], [1])\n",
    "Keras without TensorFlow": "import keras\nkeras.layers.Dense(1)\n",
    "PyTorch": "import torch\nclass tf:\n    app = Session = 1\nprint(tf.app, tf.Session)\n",
    "words in texts": TF + "'tf.Session'\nprint('tf.app.run()')  # tf.placeholder\n",
    "not Python": "tf.Session(\n",
}


@pytest.mark.parametrize("kind", OLD)
def test_names_of_version_1_are_found(look, tmp_path, kind):
    """If this fails, a script of TensorFlow 1 still needs --auto tf1."""
    text, name = OLD[kind]
    assert look(write(tmp_path, train=text)).name == name


@pytest.mark.parametrize("kind", NEW)
def test_scripts_that_run_today_are_left_alone(look, tmp_path, kind):
    """If this fails, a script of TensorFlow 2, or one that knows both, is given version 1."""
    assert look(write(tmp_path, train=NEW[kind])) is None


def test_modules_of_the_script_are_read(look, tmp_path, monkeypatch):
    """If this fails, scripts that keep their model beside them are not recognised, or modules that do
    not belong to the script speak for it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    script = write(tmp_path, train="import model\nmodel.build()\n",
                   model=TF + "def build():\n    return tf.placeholder('float')\n")
    found = look(script)
    assert (found.name, found.line) == ("tf.placeholder", 3) and found.file.endswith("/model.py")
    script = write(tmp_path, train="from nets.deep import build\nbuild()\n",
                   nets__deep="from . import parts\ndef build():\n    return parts.one()\n",
                   nets__parts=TF + "def one():\n    return tf.get_variable('x', [1])\n")
    assert look(script).file.endswith("/nets/parts.py")
    script = write(tmp_path, train=TF + "print(tf.constant(1))\n")  # the model is not imported now
    assert look(script) is None
    script = write(tmp_path, train="import other\n",
                   other=TF + "if __name__ == '__main__':\n    tf.app.run()\n")
    assert look(script) is None  # it does so only when it is the script


def test_other_peoples_packages_do_not_count(look, tmp_path, monkeypatch):
    """If this fails, an installed package that knows both versions makes a script one of version 1."""
    packages = tmp_path / "site-packages"
    packages.mkdir()
    monkeypatch.syspath_prepend(str(packages))
    (packages / "zoo.py").write_text(TF + "x = tf.placeholder('float')\n")
    assert look(write(tmp_path, train="import zoo\n")) is None
