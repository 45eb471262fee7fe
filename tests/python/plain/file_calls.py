"""What plain scripts of torch call for files, without torch itself. Prints what it finds; every worker must find the
same as a process alone. The directory has: old.txt, keep.txt, older/deep/file, table.csv."""

import glob
import json
import os
import pathlib
import shutil
import stat
import sys
import tempfile
import time


def found(what, value):
    print("FOUND", what, json.dumps(value), flush=True)


def raises(kind, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind as error:
        return type(error).__name__
    return "nothing"


while not os.path.exists(sys.argv[1]):  # somebody else makes files first
    time.sleep(0.01)
found("at first", [sorted(os.listdir(".")), glob.glob("ru*"), os.path.exists("run/ahead.txt")])
os.mkdir("run")
found("again", raises(FileExistsError, os.mkdir, "run"))
os.makedirs("run/a/b")
found("makedirs", raises(FileExistsError, os.makedirs, "run/a/b"))
os.makedirs("run/a/b", exist_ok=True)
pathlib.Path("run/note.txt").write_text("note", "ascii")
with open("run/only.txt", "x", encoding="ascii") as file:
    file.write("only")
found("x", raises(FileExistsError, open, "run/only.txt", "x", encoding="ascii"))
found("nowhere", raises(FileNotFoundError, open, "nowhere/file", "w", encoding="ascii"))
with open("table.csv", "a", encoding="ascii") as file:
    file.write("0,1\n")
with open("keep.txt", "r+", encoding="ascii") as file:
    file.write("KE")
found("appended", [pathlib.Path(name).read_text("ascii") for name in ("table.csv", "keep.txt")])
os.remove("old.txt")
found("removed", [os.path.exists("old.txt"), raises(FileNotFoundError, os.remove, "old.txt"),
                  raises(FileNotFoundError, open, "old.txt", encoding="ascii")])
found("not empty", raises(OSError, os.rmdir, "older"))
shutil.rmtree("older")
found("older", [os.path.exists("older/deep/file"), sorted(os.listdir("."))])
os.mkdir("older")
found("made anew", [os.listdir("older"), os.path.isdir("older/deep")])
os.rmdir("older")
shutil.copyfile("run/note.txt", "run/copy.txt")
shutil.copy2("keep.txt", "run/kept.txt")
os.replace("run/copy.txt", "run/best.txt")
os.rename("keep.txt", "moved.txt")
shutil.move("run/a", "run/c")
found("moved", [sorted(os.listdir("run")), os.path.isdir("run/c/b"), os.path.exists("keep.txt"),
                pathlib.Path("moved.txt").read_text("ascii")])
os.symlink("best.txt", "run/latest")
os.symlink(os.path.abspath("run"), "last_run")
found("links", [pathlib.Path("run/latest").read_text("ascii"), os.readlink("run/latest"), os.path.islink("run/latest"),
                pathlib.Path("last_run/only.txt").read_text("ascii")])
pathlib.Path("last_run/through.txt").write_text("through", "ascii")
shutil.copytree("run", "copied", symlinks=True)
os.chmod("run/note.txt", 0o600)
found("mode", stat.S_IMODE(os.stat("run/note.txt").st_mode))
os.utime("moved.txt", (1, 1))
found("time", os.stat("moved.txt").st_mtime)
os.chdir("run/c")
found("here", [os.getcwd().split("/")[-2:], os.listdir("..") != []])
with open("../deep.txt", "w", encoding="ascii") as file:
    file.write("deep")
os.chdir("../..")
with tempfile.NamedTemporaryFile("w", dir="run", delete=False, encoding="ascii") as file:
    file.write("temporary")
os.replace(file.name, "run/atomic.txt")
number = os.open("run/low.txt", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
os.write(number, b"low")
os.close(number)
for name in sorted(glob.glob("run/**/*.txt", recursive=True))[-2:]:
    os.remove(name)
for root, folders, names in os.walk("."):
    folders.sort()
    found(root, [[name, pathlib.Path(root, name).read_text("ascii")] for name in sorted(names)])
found("scanned", sorted([entry.name, entry.is_dir(), entry.is_symlink(), entry.stat().st_size if entry.is_file() else 0]
                        for entry in os.scandir("run")))
