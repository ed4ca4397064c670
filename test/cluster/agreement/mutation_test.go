package agreement

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// mutants is how many objects are made, from the same seed each time.
func mutants() int {
	if testing.Short() {
		return 90
	}
	return 600
}

// TestOfflineValidationAgreesOnMutants breaks the corpus' objects at random places: what nobody thought of writing down.
func TestOfflineValidationAgreesOnMutants(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	byKind := make(map[string][]string)
	for _, d := range corpus(t) {
		if to, why := targetOf(d); why == "" && !to.core && !strings.Contains(d.text, "requestMirror") {
			if o, err := yaml.YAMLToJSON([]byte(d.text)); err == nil {
				byKind[to.kind] = append(byKind[to.kind], string(o))
			}
		}
	}
	names := slices.Sorted(maps.Keys(byKind))
	random := rand.New(rand.NewPCG(3171, 1))
	rejected := 0
	for i := range mutants() {
		objects := byKind[names[i%len(names)]]
		d := document{file: "mutant", line: i, text: mutant(t, random, objects[random.IntN(len(objects))])}
		to, why := targetOf(d)
		if why != "" {
			t.Fatalf("%s: %s", why, d.text)
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			if !compare(t, ctx, d, to) {
				rejected++
			}
		})
	}
	t.Logf("%d of %d were rejected", rejected, mutants())
	if rejected < mutants()/3 {
		t.Error("the mutations break too little")
	}
}

// mutant is the object with one to three changes below spec. Its namespace is one that exists.
func mutant(t *testing.T, random *rand.Rand, object string) string {
	t.Helper()
	var u map[string]any
	if err := json.Unmarshal([]byte(object), &u); err != nil {
		t.Fatal(err)
	}
	if meta, ok := u["metadata"].(map[string]any); ok {
		delete(meta, "namespace")
	}
	for range 1 + random.IntN(3) {
		u["spec"] = mutate(random, u["spec"])
	}
	text, err := yaml.Marshal(u)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// mutate changes the value, or one inside of it.
func mutate(random *rand.Rand, value any) any {
	const stop = 8 // one in so many changes is at a place that has others below it
	switch v := value.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		if len(keys) == 0 || random.IntN(stop) == 0 {
			break
		}
		key := keys[random.IntN(len(keys))]
		switch random.IntN(10) {
		case 0:
			delete(v, key)
		case 1:
			v[key+"x"] = v[key]
		case 2:
			other := keys[random.IntN(len(keys))]
			v[key], v[other] = v[other], v[key]
		default:
			v[key] = mutate(random, v[key])
		}
		return v
	case []any:
		if len(v) == 0 || random.IntN(stop) == 0 {
			break
		}
		i := random.IntN(len(v))
		switch random.IntN(6) {
		case 0:
			return append(v, v[i])
		case 1:
			return slices.Delete(v, i, i+1)
		case 2:
			return slices.Repeat(v, 1+64/len(v))
		default:
			v[i] = mutate(random, v[i])
		}
		return v
	case string:
		if random.IntN(3) > 0 {
			return edit(random, v)
		}
	}
	return strange[random.IntN(len(strange))]
}

// strange are values that few fields take.
var strange = []any{
	nil, true, 0, -1, 1, 65535, 65536, 1 << 31, 1e20, 0.5, "", " ", "a", "A", "0", "a.b", "*", "*.a", "/", "//", "http://a/b", "spiffe://a/b",
	"5s", "Exact", "Service", strings.Repeat("a", 64), strings.Repeat("a", 254), strings.Repeat("/a", 600), "ä",
	[]any{}, []any{nil}, []any{"a"}, []any{map[string]any{}}, map[string]any{}, map[string]any{"name": "a"}, map[string]any{"type": "a"},
}

// edit changes a text a little.
func edit(random *rand.Rand, s string) string {
	at := random.IntN(len(s) + 1)
	switch random.IntN(4) {
	case 0:
		return strings.ToUpper(s)
	case 1:
		return s + s
	case 2:
		return s[:at]
	}
	marks := []string{" ", "/", ".", "*", "%2f", "..", "-", "_", "#", "ä", "\n", "\x00"}
	return s[:at] + marks[random.IntN(len(marks))] + s[at:]
}
