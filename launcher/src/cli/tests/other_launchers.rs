//! Command lines of people who know another launcher, or who mistype ours.

use super::super::{planned_options, table};
use super::{argv, at_site, error, run};

#[test]
fn options_for_default_behaviour_are_accepted() {
    for line in [
        "--oversubscribe --allow-run-as-root -n 2 a",
        "-oversubscribe --bind-to none -n2 a",
        "--bind-to=none --cpu_bind none --gpu-bind=NONE -n 2 a",
        "--standalone --nproc_per_node=2 --run-path --monitor_interval 1 --start-method fork --no-python a",
        "--rdzv-backend c10d --rdzv_endpoint=localhost:0 --rdzv-id 7 --max_restarts=0 --node_rank 0 -n 2 a",
        "--kill-on-bad-exit --distribution=block -n 2 a",
        "--kill-on-bad-exit=1 --unbuffered -n 2 a",
        "-genvall -launcher ssh -n 2 a",
        "--map-by slot:OVERSUBSCRIBE -n 2 a",
    ] {
        let run = run(line);
        assert_eq!(argv(&run), ["a"], "{line}");
        assert_eq!(at_site(0, |site| run.place(site)).unwrap().ranks.len(), 2, "{line}");
    }
    let run = run("--mem-bind none --oversubscribe --kill-on-bad-exit -n 2 a : --allow-run-as-root b");
    let same: Vec<String> = run.presentation.same.iter().map(ToString::to_string).collect();
    assert_eq!(same, ["--mem-bind none", "--oversubscribe", "--kill-on-bad-exit", "--allow-run-as-root"]);
}

#[test]
fn mistyped_command_is_recognized() {
    use crate::command_names::like as command_like;
    assert_eq!(
        ["mapp", "host", "docter", "verison"].map(|word| command_like(word.as_bytes())),
        [Some("map"), Some("hosts"), Some("doctor"), Some("version")]
    );
    assert_eq!(["train", "m", "python3", ""].map(|word| command_like(word.as_bytes())), [None; 4]);
}

/// All options of Open MPI 5.0's mpirun (PRRTE's schizo/ompi, with those that it still takes although they are deprecated).
const MPIRUN: &str = "help version verbose parseable parsable personality prtemca pmixmca omca gomca tune launch-agent \
    max-vm-size debug-daemons debug-daemons-file leave-session-attached tmpdir prefix noprefix forward-signals \
    allow-run-as-root report-child-jobs-separately xterm stop-on-exec stop-in-init stop-in-app timeout \
    report-state-on-timeout get-stack-traces spawn-timeout np n app output stream-buffering stdin preload-files \
    preload-binary wdir wd path show-progress pset hostfile machinefile default-hostfile host map-by rank-by bind-to \
    display do-not-launch enable-recovery max-restarts disable-recovery continuous with-ft initial-errhandler \
    display-comm display-comm-finalize soft arch file mca gmca xml tag-output timestamp-output output-directory \
    output-filename merge-stderr-to-stdout display-devel-map display-topo report-bindings display-devel-allocation \
    display-map display-allocation nolocal oversubscribe nooversubscribe use-hwthread-cpus cpu-set cpu-list \
    bind-to-core bynode bycore byslot cpus-per-proc cpus-per-rank npernode pernode npersocket ppr amca am rankfile \
    output-proctable debug";

/// All options of Hydra's mpiexec (MPICH 4 and 5).
const HYDRA: &str = "help genv genvlist genvnone genvall hostfile machinefile machine machines machinelist host hosts \
    hostlist rankmap ppn profile output-from prepend-rank prepend-pattern outfile-pattern errfile-pattern outfile \
    errfile wdir configfile env envlist envnone envall n np launcher launcher-exec bootstrap bootstrap-exec enable-x \
    disable-x rmk topolib binding bind-to map-by membind demux debug disable-auto-cleanup disable-hostname-propagation \
    enable-auto-cleanup enable-hostname-propagation gpus-per-proc gpu-subdevs-per-proc hybrid-hosts iface info \
    localhost nameserver order-nodes pmi-port print-all-exitcodes skip-launch-node usize verbose version pmi_args";

/// All options of srun (Slurm 22.05 to 24.05).
const SRUN: &str = "accel-bind account acctg-freq batch bb bbf bcast bcast-exclude begin chdir cluster-constraint \
    clusters comment compress constraint container container-id contiguous core-spec cores-per-socket cpu-bind \
    cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency disable-status distribution epilog error exact \
    exclude exclusive export export-file external extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node \
    gpus-per-socket gpus-per-task gres gres-flags help het-group hint hold immediate input interactive job-name jobid \
    kill-on-bad-exit label licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus mpi \
    msg-timeout multi-prog network nice no-allocate no-kill nodefile nodelist nodes ntasks ntasks-per-core \
    ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output overcommit overlap oversubscribe partition power \
    prefer preserve-env priority profile prolog propagate pty qos quiet quit-on-interrupt reboot relative reservation \
    resv-ports send-libs signal slurmd-debug sockets-per-node spread-job stepmgr switches task-epilog task-prolog \
    test-only thread-spec threads threads-per-core time time-min tmp treewidth tres-bind tres-per-task uid unbuffered \
    use-min-nodes verbose version wait wckey whole x11";

/// All options of torchrun (PyTorch 1.9 to 2.9).
const TORCHRUN: &str = "nnodes nproc_per_node rdzv_backend rdzv_endpoint rdzv_id rdzv_conf standalone max_restarts \
    monitor_interval start_method event_log_handler role module no_python run_path log_dir redirects tee \
    local_ranks_filter duplicate-stdout-filters duplicate-stderr-filters node_rank master_addr master_port local_addr \
    logs_specs numa-binding signals-to-handle virtual-local-rank shutdown-timeout use_env";

/// All options of deepspeed (DeepSpeed 0.17).
const DEEPSPEED: &str = "hostfile include exclude num_nodes min_elastic_nodes max_elastic_nodes num_gpus \
    num_accelerators master_port master_addr node_rank launcher launcher_args module no_python no_local_rank no_ssh \
    no_ssh_check force_multi save_pid enable_each_rank_log autotuning comment account elastic_training \
    bind_cores_to_rank bind_core_list ssh_port";

/// All options of accelerate launch (Accelerate 1.x), except `--vm`: `-vm` is `-v -m` here.
const ACCELERATE: &str = "config_file quiet cpu multi_gpu tpu ipex mixed_precision num_processes num_machines \
    num_cpu_threads_per_process enable_cpu_affinity dynamo_backend dynamo_mode dynamo_use_fullgraph dynamo_use_dynamic \
    use_deepspeed use_fsdp use_megatron_lm use_xpu use_parallelism_config gpu_ids same_network machine_rank \
    main_process_ip main_process_port tee log_dir role rdzv_backend rdzv_conf max_restarts monitor_interval module \
    no_python tpu_cluster no_tpu_cluster tpu_use_sudo env main_training_function downcast_bf16 \
    deepspeed_config_file zero_stage offload_optimizer_device offload_param_device offload_optimizer_nvme_path \
    offload_param_nvme_path gradient_accumulation_steps gradient_clipping zero3_init_flag zero3_save_16bit_model \
    deepspeed_hostfile deepspeed_exclusion_filter deepspeed_inclusion_filter deepspeed_multinode_launcher \
    deepspeed_moe_layer_cls_names fsdp_offload_params fsdp_min_num_params fsdp_sharding_strategy \
    fsdp_auto_wrap_policy fsdp_transformer_layer_cls_to_wrap fsdp_backward_prefetch fsdp_state_dict_type \
    fsdp_forward_prefetch fsdp_use_orig_params fsdp_cpu_ram_efficient_loading fsdp_sync_module_states \
    fsdp_activation_checkpointing megatron_lm_tp_degree megatron_lm_pp_degree fp8_backend fp8_margin fp8_interval \
    fp8_format fp8_amax_history_len aws_access_key_id aws_secret_access_key debug mpirun_hostfile mpirun_ccl";

/// One-letter options: of mpirun, Hydra, srun and deepspeed.
const LETTERS: &[u8] = b"hVvpncNsHxflgABbCcdDeEFGiIJKklLMmnNoOpqQrsStTuVWwxXZ";

#[test]
fn every_option_of_another_launcher_has_an_answer() {
    for name in [MPIRUN, HYDRA, SRUN, TORCHRUN, DEEPSPEED, ACCELERATE].iter().flat_map(|list| list.split_whitespace()) {
        for typed in [name.to_owned(), name.replace('_', "-")] {
            let is_own = table::JOB.by_name(typed.as_bytes()).is_some();
            let answer = planned_options::by_name(typed.as_bytes()).map(|row| row.hint.is_some() || row.same.is_some());
            assert!(is_own || answer == Some(true), "--{typed}");
        }
    }
    for letter in LETTERS.iter().copied().filter(|letter| *letter != b'N') {
        let answer = planned_options::by_letter(letter).map(|row| row.hint.is_some());
        assert!(table::JOB.by_letter(letter).is_some() || answer == Some(true), "-{}", char::from(letter));
    }
}

#[test]
fn no_known_option_gets_the_nearest_word() {
    for line in ["--prefer x a", "--time 5 a", "--nice a", "--hint x a", "--restrict a"] {
        let text = error(line);
        let known = !line.starts_with("--restrict");
        assert_eq!(text.contains("unknown option"), !known, "{line}: {text}");
    }
}

#[test]
fn names_of_commands_equal_names_in_the_table() {
    assert!(crate::cli::commands::COMMANDS.iter().map(|sub| sub.name).eq(crate::command_names::NAMES));
}
