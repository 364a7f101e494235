"""Everything that reads finished runs: selections, the bench, one analysis a group."""

for stage in EVALUATION:

    rule:
        name:
            stage
        input:
            inputs(stage),
        output:
            *PLAN.outputs(stage),
        log:
            PLAN.log(stage),
        params:
            command=PLAN.command(stage),
        wildcard_constraints:
            **PLAN.constraints(stage),
        threads: threads_of(stage)
        resources:
            mem_mb=memory_mb(stage),
            **gpu_share(stage),
        retries: 0
        shell:
            "{params.command}"
