package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weirmesh/weir/test/weirtest"
)

func TestEventsAreToldAtTheAdminEndpointAndOnceInTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("split.yaml", `{apiVersion: split.smi-spec.io/v1alpha4, kind: TrafficSplit, metadata: {name: s}, spec: {service: gone, backends: [{service: blue, weight: 1}]}}`)
	w.run()
	w.weir.WaitLog("event", weirtest.Is("reason", "RootNotFound"), weirtest.Is("object", "TrafficSplit default/s"))
	w.write("route.yaml", w.route("green"))
	w.weir.WaitLog("configuration applied", weirtest.Is("generation", 2))
	_, body := w.admin("status")
	var status struct {
		Events []struct{ Type, Reason string }
	}
	if err := json.Unmarshal([]byte(body), &status); err != nil || len(status.Events) != 1 || status.Events[0].Reason != "RootNotFound" {
		t.Errorf("/status: %v, want one event:\n%s", err, body)
	}
	w.weir.Stop()
	if n := strings.Count(w.weir.Stderr(), `"msg":"event"`); n != 1 {
		t.Errorf("%d log lines of events, want 1:\n%s", n, w.weir.Stderr())
	}
}
