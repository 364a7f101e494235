"""`snakemake core`: one target a group. `snakemake variants`: every group but core."""

for group in TRAINING.values():

    rule:
        name:
            group
        input:
            of_group(group),


rule variants:
    input:
        [out for group in TRAINING.values() if group != "core" for out in of_group(group)],
