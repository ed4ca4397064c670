package kube

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shards are tests that take long, nearly all of it in waiting. Most of them want what there is one of in a cluster: the definitions of SMI's kinds,
// the API of Traffic Metrics, named namespaces, the controller's lease, the API server itself. Each shard is run by another process with an API server
// of its own, beside the rest.
var shards = [][]string{
	{"TestConversionsGoOnWhenLeadersAndRootsChange", "TestReplicaIsReadyThatWaitsForItsOwnWebhook", "TestCheckTellsWhyVersionsAreNotConverted",
		"TestStatusShowsSplitsOfACluster", "TestRolloutControllersWriteOldVersions", "TestALostLeaseEndsTheLeadersTasksAlone", "TestWhatIsKnownOutlivesTheServer",
		"TestOtherWorkloadsAreHeldAsTheyAreStored", "TestWorkloadsAreHeldAsTheyAreStored", "TestRolloutsAreJudgedBeforeTheyAreStored",
		"TestPolicyHoldsReleasesOfOtherWorkloads", "TestCommandsReadACluster"},
	{"TestKubectlTrafficShowsWhatTheUserMaySee", "TestWhoMayTap", "TestAWatchedTapLasts", "TestRolesOfTheDraftHoldForTrafficMetrics", "TestKubectlReadsTrafficMetrics",
		"TestCheckKnowsNamedNamespaces", "TestControllerWorksWithItsRightsAlone", "TestAccessControlIsKeptInEveryVersion",
		"TestOtherWebhooksThatChangePodsAreSurvivedOrCaught", "TestCheckTellsWhatKeepsPodsFromTheirSidecars", "TestPodsGetTheirSidecarsByTLSConfigs",
		"TestTheWebhooksOfTLSConfigsGoWithThem"},
}

// shardVariable is set for a process that runs one.
const shardVariable = "WEIR_KUBE_SHARD"

func anyOf(tests []string) string { return "^(" + strings.Join(tests, "|") + ")$" }

// sharded starts the other processes, unless this is one, or somebody has chosen tests or benchmarks himself. wait gives their exit code, when what they
// said has been printed.
func sharded(ctx context.Context) (wait func() int, err error) {
	wait = func() int { return 0 }
	for _, chosen := range []string{"test.run", "test.skip", "test.bench"} {
		if flag.Lookup(chosen).Value.String() != "" {
			return wait, nil
		}
	}
	if os.Getenv(shardVariable) != "" {
		return wait, nil
	}
	if err := flag.Set("test.skip", anyOf(slices.Concat(shards...))); err != nil {
		return wait, err
	}
	var ended []func() int
	wait = func() (code int) {
		for _, end := range ended {
			code = max(code, end())
		}
		return code
	}
	for i, tests := range shards {
		args := []string{"-test.run=" + anyOf(tests)}
		for _, a := range os.Args[1:] {
			// Files are this process's.
			if !strings.HasPrefix(a, "-test.testlogfile") && !strings.Contains(a, "profile") && !strings.HasPrefix(a, "-test.trace") {
				args = append(args, a)
			}
		}
		cmd := exec.CommandContext(ctx, os.Args[0], args...)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", shardVariable, i))
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = 30 * time.Second
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := cmd.Start(); err != nil {
			return wait, err
		}
		ended = append(ended, func() int {
			err := cmd.Wait()
			if err != nil || testing.Verbose() {
				fmt.Printf("%s:\n", strings.Join(tests, ", "))
				_, _ = io.Copy(os.Stdout, &said)
			}
			if err != nil {
				fmt.Println(err)
				return 1
			}
			return 0
		})
	}
	return wait, nil
}

// TestEveryShardIsOfTestsThatThereAre holds the names together: one that nobody has would be skipped here and run nowhere.
func TestEveryShardIsOfTestsThatThereAre(t *testing.T) {
	all := slices.Concat(shards...)
	out, err := exec.Command(os.Args[0], "-test.list="+anyOf(all)).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if !slices.Contains(strings.Fields(string(out)), name) {
			t.Errorf("there is no %s", name)
		}
	}
}
