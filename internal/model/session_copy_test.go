package model_test

import (
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

func TestCopiesShareTheSessionsOfTheirRule(t *testing.T) {
	keeps := &model.Session{Name: "s"}
	for _, c := range []struct {
		rule, other model.Rule
		shares      bool
	}{
		{model.Rule{Name: model.CopyName("all", 12), Session: keeps}, model.Rule{Name: "all", Session: keeps}, true},
		{model.Rule{Name: model.CopyName("a-canary-1", 0), Session: keeps}, model.Rule{Name: "a-canary-1", Session: keeps}, true},
		{model.Rule{Name: model.CopyName("all", 0)}, model.Rule{Name: "all", Session: keeps}, false},
		{model.Rule{Name: model.CopyName("all", 0), Session: keeps}, model.Rule{Name: "all"}, false},
		{model.Rule{Name: "all-canary-", Session: keeps}, model.Rule{Name: "all", Session: keeps}, false},
		{model.Rule{Name: "all-canary-1x", Session: keeps}, model.Rule{Name: "all", Session: keeps}, false},
		{model.Rule{Name: "-canary-1", Session: keeps}, model.Rule{Session: keeps}, false},
		{model.Rule{Session: keeps}, model.Rule{Session: keeps}, false},
	} {
		rules := []model.Rule{c.rule, c.other}
		if got := model.SessionRule(rules, 0) == 1; got != c.shares {
			t.Errorf("%q has the sessions of %q: %t, want %t", c.rule.Name, c.other.Name, got, c.shares)
		}
		if got := model.SessionRule(rules, 1); got != 1 {
			t.Errorf("%q has the sessions of rule %d", c.other.Name, got)
		}
	}
	if name := model.CopyName(strings.Repeat("a", 253), 3); len(name) != 253 || !strings.HasSuffix(name, "a-canary-3") {
		t.Errorf("the copy of a long name is %q", name)
	}
}
