"""`snakemake core`: one target a group. `snakemake variants`: every group but core."""

for group in STUDY.groups:

    rule:
        name:
            group
        input:
            results_of(stages_of(group)),


rule variants:
    input:
        results_of(stages_of(*(set(STUDY.groups) - {"core"}))),
