"""One rule a stage of dvc.yaml. A job is one combination of its matrix, such as a run with a seed."""

for stage in STAGES:

    rule:
        name:
            stage
        input:
            inputs(stage),
        output:
            *outputs(stage),
        log:
            PLAN.log(stage),
        wildcard_constraints:
            **PLAN.constraints(stage),
        retries: 0
        threads: threads_of(stage)
        resources:
            **gpu_share(stage),
            mem_mb=memory_mb(stage),
        params:
            command=PLAN.command(stage),
        shell:
            "{params.command}"
