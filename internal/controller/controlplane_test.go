package controller

import (
	"errors"
	"maps"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

func TestEachGatewayIsGivenItsPartTheOneBeforeOrNothing(t *testing.T) {
	old, part := &model.Config{}, &model.Config{}
	invalid := map[model.GatewayKey]error{"shop/bad": errors.New("bad"), "shop/new": errors.New("bad")}
	got := partsFor([]model.GatewayKey{"shop/bad", "shop/bare", "shop/good", "shop/new"},
		map[model.GatewayKey]*model.Config{"shop/good": part}, map[model.GatewayKey]*model.Config{"shop/bad": old, "shop/bare": old, "shop/gone": old, "shop/good": old}, invalid)
	want := map[model.GatewayKey]*model.Config{"shop/good": part, "shop/bad": old, "shop/bare": nothing}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v: what is new and invalid is not published, so that proxies wait", got, want)
	}
}
