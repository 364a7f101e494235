"""`dvc commit --force --no-relink` of many stages in one go: python -m depthtime.interlock.commit ADDRESS...

DVC's own command reads and writes dvc.lock once for each stage it is given, so that 96 toy stages took 98 s; this is
what it does inside (`dvc.repo.commit`, DVC 3.67), with the loop around the stages only. dvc.yaml and dvc.lock are read
once: `repo.stage.load_one` would read both again for each stage, most of a second each.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from depthtime.paths import PIPELINE


def commit(addresses: Iterable[str]) -> None:
    """Enter the named stages in dvc.lock and put their outputs into DVC's cache; no file in the workspace is touched.

    Raises: dvc.exceptions.DvcException, among them dvc.lock.LockError while another DVC command runs.
    """
    from dvc.dvcfile import load_file
    from dvc.repo import Repo, lock_repo

    with Repo() as repo, lock_repo(repo):
        known = load_file(repo, str(PIPELINE)).stages
        stages = [known[address] for address in addresses]
        for stage in stages:
            # as `dvc repro` does: a stage with outputs kept in git has no place in DVC's run cache
            stage.save(run_cache=all(out.use_cache for out in stage.outs))
            stage.commit(relink=False)
        if stages:
            stages[0].dvcfile.dump_stages(stages, update_pipeline=False)


def main() -> int:
    from dvc.exceptions import DvcException

    try:
        commit(sys.argv[1:])
    except DvcException as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 255
    return 0


if __name__ == "__main__":
    sys.exit(main())
