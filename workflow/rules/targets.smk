"""`snakemake core`: one target a group. `snakemake variants`: every group but core."""

VARIANTS = [group for group in STUDY.groups if group != "core"]

for group in STUDY.groups:

    rule:
        name:
            group
        input:
            of_group(group),


rule variants:
    input:
        [out for group in VARIANTS for out in of_group(group)],
