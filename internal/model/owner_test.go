package model_test

import (
	"encoding/json"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

func TestOwnersAreToldApartByTheirText(t *testing.T) {
	for text, want := range map[model.Owner]struct {
		kind            model.OwnerKind
		namespace, name string
		valid           bool
	}{
		"shop/edge":              {model.OwnerGateway, "shop", "edge", true},
		"workload/shop/cart":     {model.OwnerWorkload, "shop", "cart", true},
		"workload/edge":          {model.OwnerGateway, "workload", "edge", true},
		"workload/workload/edge": {model.OwnerWorkload, "workload", "edge", true},
		"gateway/shop/edge":      {model.OwnerGateway, "gateway", "shop/edge", false},
		"workload/shop/cart/x":   {model.OwnerWorkload, "shop", "cart/x", false},
		"workload//cart":         {model.OwnerWorkload, "", "cart", false},
		"workload/shop/":         {model.OwnerWorkload, "shop", "", false},
		"workload/":              {model.OwnerGateway, "workload", "", false},
		"/edge":                  {model.OwnerGateway, "", "edge", false},
		"edge":                   {model.OwnerGateway, "edge", "", false},
		"":                       {},
	} {
		if text.Kind() != want.kind || text.Namespace() != want.namespace || text.Name() != want.name || text.Valid() != want.valid {
			t.Errorf("%q is %s %q/%q, valid %v; want %+v", text, text.Kind(), text.Namespace(), text.Name(), text.Valid(), want)
		}
		if ref := (model.Ref{Kind: string(want.kind), Namespace: want.namespace, Name: want.name}); text.Ref() != ref {
			t.Errorf("%q has the reference %v, want %v", text, text.Ref(), ref)
		}
		made := model.GatewayOwner(want.namespace, want.name)
		if want.kind == model.OwnerWorkload {
			made = model.WorkloadOwner(want.namespace, want.name)
		}
		if want.valid && made != text {
			t.Errorf("%v is made as %q, want %q", text.Ref(), made, text)
		}
	}
}

// TestAGatewaysListenersHaveTheJSONOfEarlierReleases holds the field of a dump, of the feed and of state files.
func TestAGatewaysListenersHaveTheJSONOfEarlierReleases(t *testing.T) {
	var got struct{ Gateway string }
	data, err := json.Marshal(model.Listener{Owner: model.GatewayOwner("shop", "edge")})
	if err == nil {
		err = json.Unmarshal(data, &got)
	}
	if err != nil || got.Gateway != "shop/edge" {
		t.Errorf("a listener of Gateway shop/edge is %s, %v", data, err)
	}
}
