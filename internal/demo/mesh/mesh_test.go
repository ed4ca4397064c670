package mesh

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/policy"
)

func TestTheDenialIsGoneOnceTheRoleIsEdited(t *testing.T) {
	var out, errs bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	patience = 500 * time.Millisecond
	seen := func(s *state) {
		// report's first call, which the edit allows.
		if r := s.rows[len(calls)]; s.edited > 0 && r.allowed > 0 {
			cancel()
		}
	}
	if err := run(ctx, &out, &errs, 0, seen); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out.String(), errs.String())
	}
	text := out.String()
	for _, want := range []string{"try it   curl -x 127.0.0.1:", "report may read carts, too", ", 0 otherwise than the roles say", "TrafficRole read-carts by TrafficRoleBinding web-reads-carts", "no rule of this client is for the call"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	if errs.Len() > 0 {
		t.Error(errs.String())
	}
}

func TestEveryVerdictHasWords(t *testing.T) {
	for r := policy.Ungoverned; r <= policy.TooMuchWork; r++ {
		if words[r] == "" {
			t.Errorf("%v has none", r)
		}
	}
}
