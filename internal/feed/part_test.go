package feed

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
)

// fill sets all of a value to something random, the same for the same generator.
func fill(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("text-%d <&> é", r.IntN(1000)))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(r.Int64N(100))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(r.Uint64N(100))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(r, v.Elem())
	case reflect.Slice:
		n := 1 + r.IntN(2)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(r, v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(r.Int64N(1<<32), 0).UTC()))
			return
		}
		for i := range v.NumField() {
			fill(r, v.Field(i))
		}
	default:
		panic("the model has a " + v.Kind().String() + ", which feed does not know: see same")
	}
}

func random(seed uint64) *model.Config {
	c := &model.Config{}
	fill(rand.New(rand.NewPCG(seed, 1)), reflect.ValueOf(c).Elem())
	c.Sort()
	return c
}

// TestEverythingOfTheModelIsCarried fails when a field of the model is not carried, such as a new one that hides itself
// when it is marshalled.
func TestEverythingOfTheModelIsCarried(t *testing.T) {
	for seed := range uint64(50) {
		c := random(seed)
		contents := make([][]*model.Config, len(lists))
		for l, p := range parts(c) {
			var b bytes.Buffer
			if err := encodePart(&b, p); err != nil {
				t.Fatal(err)
			}
			name := string(appendName(nil, l, p))
			part, err := decodePart(name, b.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			contents[listOf(name)] = append(contents[listOf(name)], part)
		}
		got := &model.Config{}
		for i, l := range lists {
			l.Concat(got, contents[i])
		}
		if !reflect.DeepEqual(got, c) {
			t.Fatalf("seed %d: what arrived differs:\n%+v\n%+v", seed, got, c)
		}
	}
}

func TestEqualSaysWhatDeepEqualSays(t *testing.T) {
	for seed := range uint64(50) {
		a, b := random(seed), random(seed)
		if !a.Equal(b) {
			t.Fatalf("seed %d: equal ones are not the same", seed)
		}
		other := random(seed + 1)
		if a.Equal(other) {
			t.Fatalf("seed %d: different ones are the same", seed)
		}
		changeOne(rand.New(rand.NewPCG(seed, 2)), reflect.ValueOf(b).Elem())
		if a.Equal(b) != reflect.DeepEqual(a, b) {
			t.Fatalf("seed %d: Equal and DeepEqual differ", seed)
		}
	}
}

// changeOne changes one leaf of a value.
func changeOne(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		changeOne(r, v.Elem())
	case reflect.Slice:
		changeOne(r, v.Index(r.IntN(v.Len())))
	case reflect.Struct:
		if v.Type() != reflect.TypeFor[time.Time]() {
			changeOne(r, v.Field(r.IntN(v.NumField())))
			return
		}
		fallthrough
	default:
		fill(r, v)
	}
}

func TestUnchangedPartsAreNotEncodedAgain(t *testing.T) {
	c := config(100, 50)
	first, err := newSnapshot(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	again := config(100, 50) // equal, in other memory
	again.Services[10].Endpoints[3].Address = "10.77.0.1:80"
	again.Sort()
	second, err := newSnapshot(again, first)
	if err != nil {
		t.Fatal(err)
	}
	step := second.since(first)
	if len(step.changed) != 1 || len(step.removed) != 0 || step.changed[0].name != "service/default/service-00010:80" {
		t.Errorf("step: %+v", step)
	}
	kept := 0
	for i := range second.parts {
		if second.parts[i] == first.parts[i] {
			kept++
		}
	}
	if kept != len(first.parts)-1 {
		t.Errorf("%d of %d parts were kept", kept, len(first.parts))
	}
	if second.version != Version(again) || second.version == first.version {
		t.Error("the version is not that of the content")
	}
}

// TestStepsLeadThere compares the results of steps with the configurations that they should lead to, on random
// configurations.
func TestStepsLeadThere(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var before *snapshot
	var has assembly
	for i := range 200 {
		c := config(1+r.IntN(20), 1+r.IntN(10))
		c = moved(c, r.IntN(len(c.Services)), fmt.Sprintf("10.99.0.%d:80", r.IntN(5)))
		drop := r.IntN(len(c.Routes))
		c.Routes = slices.Delete(slices.Clone(c.Routes), drop, drop+1)
		next, err := newSnapshot(c, before)
		if err != nil {
			t.Fatal(err)
		}
		s := next.sinceVersions(has.versions())
		if before != nil {
			if other := next.since(before); !slices.Equal(s.changed, other.changed) || !slices.Equal(s.removed, other.removed) {
				t.Fatalf("%d: the steps differ", i)
			}
		}
		var fresh []*received
		for _, p := range s.changed {
			fresh = append(fresh, newReceived(p.name, p.resource.Resource.Value))
		}
		for _, name := range s.removed {
			fresh = append(fresh, &received{name: name})
		}
		r.Shuffle(len(fresh), func(i, j int) { fresh[i], fresh[j] = fresh[j], fresh[i] })
		if err := has.merge(fresh, maxConfig); err != nil {
			t.Fatal(err)
		}
		got, left := has.config()
		if left != nil {
			t.Fatal(left)
		}
		if has.version() != Version(c) || Version(got) != Version(c) {
			t.Fatalf("%d: it leads elsewhere", i)
		}
		before = next
	}
}

func TestOrderOfSplitsAndUnsortedInputSurvive(t *testing.T) {
	split := func(root, name string) model.Split {
		return model.Split{Root: root, Ref: model.Ref{Kind: "TrafficSplit", Name: name}, Leaves: []model.Leaf{{Service: root, Weight: 1}}}
	}
	service := func(name string) model.Service { return model.Service{Name: name, Protocol: model.HTTP} }
	c := &model.Config{
		Splits:   []model.Split{split("a:1", "z"), split("b:1", "x"), split("a:1", "y")},
		Services: []model.Service{service("b:1"), service("a:1")},
	}
	s, err := newSnapshot(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	var has assembly
	for _, p := range s.parts {
		if err := has.merge([]*received{newReceived(p.name, p.resource.Resource.Value)}, maxConfig); err != nil {
			t.Fatal(err)
		}
	}
	got, left := has.config()
	if left != nil {
		t.Fatal(left)
	}
	var order []string
	for _, s := range got.Splits {
		order = append(order, s.Ref.Name)
	}
	if !slices.Equal(order, []string{"z", "y", "x"}) {
		t.Errorf("order: %q", order)
	}
	clash := &model.Config{Routes: []model.Route{{Ref: model.Ref{Kind: "R", Namespace: "a/b", Name: "c"}}, {Ref: model.Ref{Kind: "R", Namespace: "a", Name: "b/c"}}}}
	if _, err := newSnapshot(clash, nil); err == nil || !strings.Contains(err.Error(), "two different parts") {
		t.Errorf("clash: %v", err)
	}
}

func TestBadPartsAreRefused(t *testing.T) {
	for data, name := range map[string]string{
		`{"services":[{"name":"a","protocol":"http","ref":{"kind":"","name":""},"novelty":1}]}`: "service/a",
		`{"services":[{"name":"b"}]}`:                            "service/a",
		`{"services":[{"name":"a"}],"listeners":[{"name":"a"}]}`: "service/a",
		`{"services":[{"name":"a"}]} {}`:                         "service/a",
		`{}`:                                                     "",
		`{"certificates":[{"name":"x","key":"` + "\x01" + `SECRET`: "certificate/x",
		`{"certificates":[{"name":"x","key":["SECRET"]}]}`:         "certificate/x",
		`{"certificates":[{"name":"x","key":"SECRET"},"SECRET"]}`:  "certificate/x",
	} {
		_, err := decodePart(name, []byte(data))
		if err == nil {
			t.Errorf("%s is taken", data)
		} else if strings.Contains(err.Error(), "SECRET") {
			t.Errorf("the error shows a key: %v", err)
		}
	}
}

func TestWhatIsTooLargeKeepsNoOtherGatewayBack(t *testing.T) {
	s := new(Server)
	publish(t, s, config(2, 2))
	large := &model.Config{Certificates: []model.Certificate{{Name: "x", Chain: strings.Repeat("x", maxPart)}}}
	const other model.Owner = "default/other"
	third := config(3, 3)
	for range 2 { // the same configuration meets the same error
		errs := s.Publish(map[model.Owner]*model.Config{gateway: large, other: third})
		if err := errs[gateway]; len(errs) != 1 || err == nil || !strings.Contains(err.Error(), "certificate/x") || s.Version(gateway) != Version(config(2, 2)) {
			t.Errorf("%v; want the part named, and the configuration before kept", errs)
		}
		if s.Version(other) != Version(third) {
			t.Error("another Gateway is kept back")
		}
	}
	if errs := s.Publish(map[model.Owner]*model.Config{gateway: config(2, 2), other: third}); len(errs) != 0 {
		t.Errorf("it is sent again, and said not to be: %v", errs)
	}
}

// TestAConfigurationThatIsTheSameIsNotLookedAt holds that who publishes says what has changed: the same configuration, by its address, costs nothing,
// also after it was published no more and is published again.
func TestAConfigurationThatIsTheSameIsNotLookedAt(t *testing.T) {
	s, c, empty := new(Server), config(20, 20), Version(&model.Config{})
	publish(t, s, c)
	version := s.Version(gateway)
	all := map[model.Owner]*model.Config{gateway: c}
	if n := testing.AllocsPerRun(10, func() { s.Publish(all) }); n > 4 {
		t.Errorf("%v allocations for what was published before", n)
	}
	s.mu.Lock()
	s.feed(gateway).sessions["a"] = &session{feed: s.feed(gateway)} // or it is forgotten
	s.mu.Unlock()
	if len(s.Publish(nil)) != 0 || s.Version(gateway) != empty {
		t.Errorf("version %s of what is published no more, want that of nothing", s.Version(gateway))
	}
	if len(s.Publish(all)) != 0 || s.Version(gateway) != version {
		t.Error("what is published again is not there")
	}
}

func FuzzDecodePart(f *testing.F) {
	c := random(1)
	for l, p := range parts(c) {
		var b bytes.Buffer
		if err := encodePart(&b, p); err != nil {
			f.Fatal(err)
		}
		f.Add(string(appendName(nil, l, p)), b.Bytes())
	}
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		content, err := decodePart(name, data)
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := encodePart(&b, content); err != nil {
			return // such as a year that JSON has not
		}
		again, err := decodePart(name, b.Bytes())
		if err != nil {
			t.Fatalf("what was read is not read again: %v\n%s", err, b.Bytes())
		}
		var c bytes.Buffer
		if err := encodePart(&c, again); err != nil || !bytes.Equal(b.Bytes(), c.Bytes()) {
			t.Fatalf("the encodings differ (%v):\n%s\n%s", err, b.Bytes(), c.Bytes())
		}
	})
}

func FuzzDecodeState(f *testing.F) {
	s, err := newSnapshot(config(2, 2), nil)
	if err != nil {
		f.Fatal(err)
	}
	var parts []*received
	for _, p := range s.parts {
		parts = append(parts, newReceived(p.name, p.resource.Resource.Value))
	}
	good, err := encodeState(gateway, parts)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add([]byte(stateMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, data := range [][]byte{data, sealed(data)} {
			a, _, err := decodeState(data, gateway, 1<<20)
			if err != nil {
				continue
			}
			c, left := a.config()
			if err := c.Validate(); err != nil {
				t.Fatalf("what is left is not valid: %v", err)
			}
			if left != nil {
				continue
			}
			out, err := encodeState(gateway, a.parts)
			if err != nil {
				t.Fatal(err)
			}
			if b, _, err := decodeState(out, gateway, 1<<20); err != nil || b.version() != a.version() {
				t.Fatalf("what was written is not read again: %v", err)
			}
		}
	})
}
