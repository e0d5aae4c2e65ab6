# Completes rlaunch in fish: made by `rlaunch completions fish`.
function __rlaunch_table --description 'The command whose words are typed, job, or program after the begin of one'
@LISTS@    set -l words (commandline -opc)[2..]
    set -l table job
    if set -q words[1]
        if contains -- $words[1] @OWN@
            set table $words[1]
            set -e words[1]
        else if contains -- $words[1] @JOB@
            set -e words[1]
        end
    end
    set -l values {$table}_values
    set -l is_value 0
    for word in $words
        if test $is_value = 1
            set is_value 0
        else if contains -- $word $$values
            set is_value 1
        else if not string match -q -- '-*' $word; and test $table = job
            set table program
            break
        end
    end
    echo $table
end

function __rlaunch_in
    test (__rlaunch_table) = $argv[1]
end

function __rlaunch_is_first
    test (count (commandline -opc)) = 1
end

complete -c rlaunch -n '__rlaunch_in job' -a '(__fish_complete_command)'
