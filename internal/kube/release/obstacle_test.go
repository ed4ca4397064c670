package release

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/weirmesh/weir/internal/kube"
)

// TestAnAPIServerThatStartsIsNoObstacle: what it does not tell of yet may be there, and so may OpenKruise.
func TestAnAPIServerThatStartsIsNoObstacle(t *testing.T) {
	const path = "/apis/rollouts.kruise.io"
	group := `{"kind":"APIGroup","apiVersion":"v1","name":"rollouts.kruise.io","versions":[{"groupVersion":"rollouts.kruise.io/v1beta1","version":"v1beta1"}]}`
	kinds := func(names ...string) (list string) {
		for _, n := range names {
			list += fmt.Sprintf(`,{"name":"x","kind":%q}`, n)
		}
		return `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"rollouts.kruise.io/v1beta1","resources":[` + list[min(1, len(list)):] + `]}`
	}
	for name, c := range map[string]struct {
		answers map[string]string
		status  int // of a list of Rollouts
		want    Obstacle
		fails   bool
	}{
		"Rollouts":                {map[string]string{path: group, path + "/v1beta1": kinds("Rollout")}, 200, "", false},
		"OpenKruise":              {map[string]string{path: group, path + "/v1beta1": kinds("Rollout", "BatchRelease")}, 200, OpenKruise, false},
		"nothing":                 {nil, 404, Undefined, false},
		"other kinds alone":       {map[string]string{path: group, path + "/v1beta1": kinds("TrafficRouting")}, 404, Undefined, false},
		"none that may be read":   {nil, 403, Undefined, false},
		"Rollouts, untold":        {nil, 200, "", true},
		"a server that is not up": {nil, 503, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				answer, ok := c.answers[r.URL.Path]
				switch {
				case ok:
					fmt.Fprint(w, answer)
				case r.URL.Path == path+"/v1beta1/rollouts":
					w.WriteHeader(c.status)
				default:
					w.WriteHeader(http.StatusNotFound)
				}
			}))
			defer s.Close()
			client, err := kube.NewClient(&rest.Config{Host: s.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if why, err := FindObstacle(t.Context(), client); why != c.want || (err != nil) != c.fails {
				t.Errorf("%q, %v, want %q, an error: %t", why, err, c.want, c.fails)
			}
		})
	}
}
