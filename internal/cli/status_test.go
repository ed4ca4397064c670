package cli_test

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestStatusShowsWhatIsAttachedAndWhatIsWrong(t *testing.T) {
	weir("", "status", examples+"canary").want(t, 0, "default/edge", "1/1", "HTTPRoute default/shop", "yes", "!!")
	lonely := strings.ReplaceAll(wrongRoute, "percent: 142", "percent: 42")
	lonely = strings.ReplaceAll(lonely, "name: shop, port: 80}]", "name: gone, port: 80}]")
	weir(gateway+lonely, "status", "-").want(t, 1, "HTTPRoute default/shop: at edge: ResolvedRefs=False BackendNotFound", "1 object with something wrong")
	weir(gateway+lonely, "status", "-o", "json", "-").want(t, 1, `"wrong": 1`, `"reason": "BackendNotFound"`)
	weir("{apiVersion: v1, kind: Namespace, metadata: {name: a}}", "status", "-").want(t, 0, "nothing here is Weir's")
}

func TestCommandsWithoutPathSayThatThereIsNoCluster(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("HOME", t.TempDir())
	for _, args := range [][]string{{"check"}, {"status"}, {"dump"}, {"explain", "--", "http://a.example/"}} {
		weir("", args...).want(t, 2, "stderr:no way to a Kubernetes API server", "stderr:PATH")
	}
	weir("", "dump", "--gateway", "a/b", examples+"canary").want(t, 2, "stderr:--gateway is for clusters")
}

func TestProxyAndControllerCheckTheirFlags(t *testing.T) {
	weir("", "proxy", "--gateway", "edge", "--controller", "a:1").want(t, 2, `stderr:--gateway "edge": want NAMESPACE/NAME`)
	weir("", "proxy", "--gateway", "a/edge", "--controller", "a").want(t, 2, `stderr:--controller "a": want HOST:PORT`)
	weir("", "controller").want(t, 2, "stderr:--proxy-image")
	weir("", "controller", "--proxy-image", "weir", "--feed-address", "18000").want(t, 2, "stderr:--feed-address")
}
