package traffic

import (
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/telemetry"
)

func TestLinesOfATap(t *testing.T) {
	pod := telemetry.Side{Kind: "Pod", Namespace: "shop", Name: "cart-1"}
	gateway := telemetry.Side{Kind: "Gateway", Namespace: "shop", Name: "gw"}
	x := telemetry.Tapped{Time: time.Now(), At: gateway, To: pod, Method: "GET", Host: "shop.example", Path: "/cart", Status: 200, Duration: 3200 * time.Microsecond, Attempts: 1}
	for want, edit := range map[string]func(x *telemetry.Tapped){
		"Gateway shop/gw -> Pod shop/cart-1  GET shop.example/cart  200  3.2ms": func(*telemetry.Tapped) {},
		"Address 10.0.0.1 -> Gateway shop/gw -> Pod shop/cart-1  GET shop.example/cart  503 (2 attempts)  3.2ms": func(x *telemetry.Tapped) {
			x.From.Kind, x.From.Name, x.Status, x.Attempts = "Address", "10.0.0.1", 503, 2
		},
		"unknown -> Gateway shop/gw  GET shop.example/cart  none client_closed  3.2ms": func(x *telemetry.Tapped) { x.To, x.Status, x.Reason = telemetry.Side{}, 0, telemetry.ClientClosed },
	} {
		y := x
		edit(&y)
		if got := TapLine(&y); !strings.HasSuffix(got, "  "+want) || len(got) != len(want)+14 {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := TapEnd(telemetry.TapCounts{Matched: 5, Shown: 5}); got != "" {
		t.Error(got)
	}
	if got := TapEnd(telemetry.TapCounts{Matched: 500, Shown: 100}); !strings.HasPrefix(got, "100 of 500 requests were shown") {
		t.Error(got)
	}
}

func TestWhatIsSaidOfProxies(t *testing.T) {
	for want, c := range map[string]telemetry.TapCounts{
		"":                    {Matched: 1},
		"1 proxy takes part":  {Proxies: 1},
		"3 proxies take part": {Proxies: 3},
		"0 proxies take part, 1 proxy does not answer": {Silent: 1},
		"1 proxy takes part, 2 proxies do not answer":  {Proxies: 1, Silent: 2},
	} {
		if got := TapProxies(c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
