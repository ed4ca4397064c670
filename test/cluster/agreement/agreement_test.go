package agreement

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/resource"
)

// few is how many documents of a kind the short form compares, besides mistakes.
const few = 20

// The two sides must agree on whether a manifest is valid and on the fields that make it invalid, for kinds with a
// definition also on the wording. What may differ on purpose:
//   - The shares of a RequestMirror filter: Weir reports what the released API rejects, and serves the rest (withoutMirrors).
//   - Kubernetes' own kinds: Weir has its own words, says one thing of a field, names the address where the API server
//     names the list, and takes endpoints on loopback.
//   - What stricter names: it cannot work, but the API server lets it pass.
//   - What targetOf names: it reaches only one of the two.
//   - What an owner reference lacks, before Kubernetes 1.37 (asBefore).
//
// The short form compares all mistakes, and few of the other documents of a kind.
func TestOfflineValidationAgreesWithTheAPIServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	skipped := make(map[string]int)
	compared := make(map[string][2]int) // by kind: accepted, rejected
	namespaces := map[string]bool{"default": true}
	for _, d := range corpus(t) {
		to, why := targetOf(d)
		if why == "" && to.namespace != "" && !namespaces[to.namespace] {
			if namespaces[to.namespace] = makeNamespace(t, ctx, to.namespace); !namespaces[to.namespace] {
				why = "namespace that cannot exist"
			}
		}
		if why != "" {
			skipped[why]++
			if d.mistake {
				t.Errorf("%s: not compared: %s", d, why)
			}
			continue
		}
		if n := compared[to.kind]; testing.Short() && !d.mistake && n[0]+n[1] >= few {
			skipped["for the full size"]++
			continue
		}
		t.Run(d.String(), func(t *testing.T) {
			accepted := compare(t, ctx, d, to)
			counts := compared[to.kind]
			if accepted {
				counts[0]++
			} else {
				counts[1]++
			}
			compared[to.kind] = counts
		})
	}
	for why, n := range skipped {
		t.Logf("%d not compared: %s", n, why)
	}
	for kind, k := range kinds {
		counts := compared[kind]
		t.Logf("%s: %d accepted, %d rejected", kind, counts[0], counts[1])
		if counts[0] == 0 || counts[1] == 0 && !k.core {
			t.Errorf("%s: the corpus has too little of it", kind)
		}
	}
}

func makeNamespace(t *testing.T, ctx context.Context, name string) bool {
	t.Helper()
	a, err := send(ctx, http.MethodPost, "/api/v1/namespaces", fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %q}}", name))
	if err != nil {
		t.Fatal(err)
	}
	return a.code == http.StatusCreated || a.code == http.StatusConflict
}

// compare reports whether the API server accepted the document.
func compare(t *testing.T, ctx context.Context, d document, to target) bool {
	t.Helper()
	theirs, strictly := online(t, ctx, d, to)
	ours, mirrors := offline(t, d, to)
	ours = asBefore(theirs, ours)
	defer func() {
		if t.Failed() {
			t.Logf("the API server said: %s\nWeir said: %s\n%s", theirs.told, ours.told, d.text)
		}
	}()
	if d.mistake && theirs.accepted && strictly {
		t.Error("this was meant to be a mistake, but the API server takes it")
	}
	if wantStrictly := theirs.accepted && len(ours.unknown) == 0 && !ours.duplicates; strictly != wantStrictly {
		t.Errorf("accepted with strict field validation: %t; by what Weir says: %t", strictly, wantStrictly)
	}
	if theirs.cut {
		ours.unknown = slices.DeleteFunc(ours.unknown, func(field string) bool { return !slices.Contains(theirs.unknown, field) })
	}
	if ours.bounded {
		theirs.unknown = slices.DeleteFunc(theirs.unknown, func(field string) bool { return !slices.Contains(ours.unknown, field) })
	}
	if !slices.Equal(ours.unknown, theirs.unknown) {
		t.Errorf("unknown fields: the API server %q, Weir %q", theirs.unknown, ours.unknown)
	}
	if ours.duplicates != theirs.duplicates {
		t.Errorf("a field is written twice: the API server %t, Weir %t", theirs.duplicates, ours.duplicates)
	}
	if len(mirrors) > 0 {
		withoutMirrors(t, &theirs, &ours, mirrors)
	}
	if ours.bounded {
		theirs.errors = slices.DeleteFunc(located(theirs.errors), func(e string) bool { return !slices.Contains(ours.errors, e) })
		theirs.unchecked = ours.unchecked
	}
	if ours.accepted != theirs.accepted {
		t.Errorf("accepted: the API server %t, Weir %t", theirs.accepted, ours.accepted)
	}
	if ours.unchecked != theirs.unchecked {
		t.Errorf("rules left unchecked: the API server %t, Weir %t", theirs.unchecked, ours.unchecked)
	}
	compareErrors(t, theirs, ours, to)
	return theirs.accepted
}

func compareErrors(t *testing.T, theirs, ours verdict, to target) {
	t.Helper()
	got, want := ours.errors, located(theirs.errors)
	switch {
	case theirs.unlocated:
		if len(got) == 0 {
			t.Error("Weir has no error")
		}
		return
	case to.core:
		// Weir leaves out what follows from another error, such as from that of a port which is the target port's default.
		got, want = fields(got), fields(want)
		for i, field := range want {
			want[i] = strings.Replace(field, "spec.clusterIPs[0]", "spec.clusterIP", 1) // as it was written
		}
		for i, field := range got {
			if list := familyPath.ReplaceAllString(field, ".addresses"); !slices.Contains(want, field) && slices.Contains(want, list) {
				got[i] = list
			}
		}
		slices.Sort(got)
		got = slices.Compact(got)
		want = slices.DeleteFunc(want, func(field string) bool { return len(got) > 0 && !slices.Contains(got, field) })
	}
	if !slices.Equal(got, want) {
		t.Errorf("errors: the API server\n\t%s\nWeir\n\t%s", strings.Join(want, "\n\t"), strings.Join(got, "\n\t"))
	}
}

// withoutMirrors holds each finding about a mirror against the API server's errors at that filter, and takes both out.
func withoutMirrors(t *testing.T, theirs, ours *verdict, mirrors []resource.Finding) {
	t.Helper()
	if theirs.accepted {
		t.Error("the API server accepts a mirror that Weir says the released API rejects")
	}
	for _, f := range mirrors {
		at, _, _ := strings.Cut(f.Ref.Field, ".requestMirror")
		at += ".requestMirror"
		before := len(theirs.errors)
		theirs.errors = slices.DeleteFunc(theirs.errors, func(e string) bool {
			field, _, _ := strings.Cut(e, ": ")
			return field == at || field == at+".percent" || strings.HasPrefix(field, at+".fraction")
		})
		// Errors of a schema, as of a missing numerator, keep the API server from running the rules, which forbid some shares.
		if len(theirs.errors) == before && !theirs.unchecked && !slices.ContainsFunc(mirrors, func(other resource.Finding) bool {
			return other != f && strings.HasPrefix(other.Ref.Field, at)
		}) {
			t.Errorf("the API server has no error at %s, of which Weir says %s", at, f.Message)
		}
	}
	theirs.accepted = len(theirs.errors) == 0
	theirs.unchecked = ours.unchecked
}
