package exchange

import (
	"testing"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
)

func TestGRPCKeepsItsStatus(t *testing.T) {
	ex := &Exchange{routed: routed{rule: &Rule{filters: filters{response: compileEdit(&model.HeaderEdit{Remove: []string{"grpc-status", "x-a"}})}}}}
	in := []http1.Field{{Name: "x-a", Value: "1"}, {Name: "grpc-status", Value: "0"}, {Name: "grpc-message", Value: "m"}}
	if out := ex.sentTrailers(in); len(out) != 2 || out[0].Name != "grpc-status" || out[1].Name != "grpc-message" || in[0].Name != "x-a" {
		t.Errorf("%v of %v", out, in)
	}
}
