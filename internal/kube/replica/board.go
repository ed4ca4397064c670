package replica

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/model"
)

// The form of a ConfigMap of the board.
const (
	// BoardLabel is on every ConfigMap of the board; its value is BoardValue.
	BoardLabel  = "weir.weirmesh.github.io/board"
	BoardValue  = "proxies"
	boardKey    = "proxies.json.gz"
	sidecarsKey = "sidecars.json.gz"
	// questionsKey and answersKey have Questions and what is awaited until the answer is yes, by the names of the questions;
	// answeringKey says that the replica answers.
	questionsKey = "questions.json.gz"
	answersKey   = "answers.json.gz"
	answeringKey = "answers"
	renewedKey   = "renewed"
	addressKey   = "address"
)

// Bounds of the board.
const (
	boardPause   = time.Second     // between two writes
	sidecarPause = 5 * time.Second // before one that is about sidecars alone
	boardRenewal = time.Minute     // the longest time between two writes
	// boardAge is how long the word of a replica that does not renew it counts; after boardGone others remove it.
	boardAge, boardGone = 3 * boardRenewal, 10 * boardRenewal
	boardTimeout        = 10 * time.Second
	boardSize           = 64 << 20 // bytes of one replica's word, unpacked
)

// Board is where each replica writes what its connected proxies run, for the leader to read: one ConfigMap for each
// replica.
type Board struct {
	Client client.Client
	// Cache sees the ConfigMaps of the board at least; see BoardCache.
	Cache cache.Cache
	// Namespace is the controller's, Name that of this replica's ConfigMap.
	Namespace, Name string
	// Pod, if set, is the one that this replica runs in: Kubernetes removes the ConfigMap when that is gone, also if the replica could
	// not, as others would wait until boardAge for a word about sidecars that have gone with it.
	Pod *metav1.OwnerReference
	// Address is where other replicas reach this one, "IP:port"; empty means that they cannot.
	Address string
	// Running returns what the proxies connected to this replica run, by owner.
	Running func() map[model.Owner][]feed.Proxy
	// Sidecars, if set, returns the sidecars that are connected to this replica.
	Sidecars func() []Sidecar
	// Answer, if set, answers another replica's Question: what is awaited, empty if nothing. AnswerAgain has it asked again.
	Answer func(Question) (awaited string)
	// Changed is called when another replica wrote something else about proxies of Gateways, or another answer.
	Changed func()
	Logger  *slog.Logger

	wake   chan struct{}
	later  chan struct{}
	once   sync.Once
	mu     sync.Mutex
	others map[string]replicaReport // by ConfigMap
	// own are this replica's sidecars as they were last, holders the other replicas to which some are connected.
	own     []Sidecar
	holders map[string]bool
	// questions are those of this replica, served when those were asked last that all have answered by yes, said its answers to
	// those of others, by their names.
	questions map[string]asked
	served    map[string]time.Time
	said      map[string]string
}

// replicaReport is the report of another replica.
type replicaReport struct {
	proxies  map[model.Owner][]feed.Proxy // by owner
	sidecars []Sidecar
	address  string
	seen     time.Time
	// questions are the replica's, answers its answers to those of this one and of others, if answering says that it gives some.
	questions map[string]Question
	answers   map[string]string
	answering bool
}

// Replica is another replica, as the board has it.
type Replica struct {
	Name string
	// Address is where it says that it is reached; empty if it says nothing, as those of older releases.
	Address string
	// Proxies is how many proxies are connected to it, without those that have gone to other replicas since.
	Proxies int
}

// Replicas are the other replicas that have renewed their word lately, by name.
func (b *Board) Replicas() []Replica {
	own := b.Running()
	b.mu.Lock()
	defer b.mu.Unlock()
	newest := map[string]time.Time{}
	note := func(all map[model.Owner][]feed.Proxy) {
		for _, proxies := range all {
			for _, p := range proxies {
				if p.Since.After(newest[p.Name]) {
					newest[p.Name] = p.Since
				}
			}
		}
	}
	note(own)
	for _, r := range b.others {
		note(r.proxies)
	}
	var out []Replica
	for _, name := range slices.Sorted(maps.Keys(b.others)) {
		r := b.others[name]
		if r.proxies == nil {
			continue
		}
		n := 0
		for _, proxies := range r.proxies {
			for _, p := range proxies {
				if !p.Since.Before(newest[p.Name]) {
					n++
				}
			}
		}
		out = append(out, Replica{name, r.address, n})
	}
	return out
}

// BoardCache returns a cache that sees the board alone; its Start blocks until its context ends.
func BoardCache(config *rest.Config, namespace string) (cache.Cache, error) {
	return cache.New(config, cache.Options{
		ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
			Namespaces: map[string]cache.Config{namespace: {}},
			Label:      labels.SelectorFromSet(labels.Set{BoardLabel: BoardValue}),
		}},
		DefaultTransform: cache.TransformStripManagedFields(),
	})
}

func (b *Board) init() {
	b.once.Do(func() { b.wake, b.later = make(chan struct{}, 1), make(chan struct{}, 1) })
}

// Tell reports that Running has changed.
func (b *Board) Tell() {
	b.init()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// TellSidecars reports that Sidecars has changed, which others may learn somewhat later: with many, one of them always
// comes or goes.
func (b *Board) TellSidecars() {
	b.init()
	select {
	case b.later <- struct{}{}:
	default:
	}
}

// sidecars are those of this replica.
func (b *Board) sidecars() []Sidecar {
	if b.Sidecars == nil {
		return nil
	}
	return b.Sidecars()
}

// Others returns what proxies of an owner run that are connected to other replicas.
func (b *Board) Others(owner model.Owner) []feed.Proxy {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []feed.Proxy
	for _, name := range slices.Sorted(maps.Keys(b.others)) {
		out = append(out, b.others[name].proxies[owner]...)
	}
	return out
}

// Run writes and reads until ctx ends, which is no error; then it takes this replica's word back. The cache must run.
func (b *Board) Run(ctx context.Context) error {
	b.init()
	informer, err := b.Cache.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch the state of other replicas: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { b.read(o, false) },
		UpdateFunc: func(old, o any) {
			if before, ok := old.(*corev1.ConfigMap); ok && before.ResourceVersion == o.(*corev1.ConfigMap).ResourceVersion {
				return // it is listed again: who wrote it may be gone
			}
			b.read(o, false)
		},
		DeleteFunc: func(o any) { b.read(o, true) },
	})
	if err != nil {
		return fmt.Errorf("watch the state of other replicas: %w", err)
	}
	var written word
	pause := time.NewTimer(0)
	defer pause.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			b.remove(context.WithoutCancel(ctx), b.Name)
			return nil
		case <-pause.C:
		}
		b.expire(ctx)
		w := word{b.Running(), b.sidecars(), b.open(), b.answer(written.answers)}
		b.mu.Lock()
		b.own, b.said = w.sidecars, w.answers
		b.hold()
		b.mu.Unlock()
		if written.running == nil || time.Since(last) >= boardRenewal || !reflect.DeepEqual(w, written) {
			if err := b.write(ctx, &w); err == nil {
				written, last = w, time.Now()
			} else if ctx.Err() == nil {
				b.Logger.Warn("telling other replicas what the proxies run failed", "configmap", b.Namespace+"/"+b.Name, "reason", err)
				b.Tell()
			}
		}
		select {
		case <-ctx.Done():
		case <-b.wake:
			pause.Reset(boardPause)
		case <-b.later:
			if !b.questioned() {
				b.rest(ctx)
			}
			pause.Reset(boardPause)
		case <-time.After(boardRenewal):
			pause.Reset(0)
		}
	}
}

// word is what a replica writes.
type word struct {
	running   map[model.Owner][]feed.Proxy
	sidecars  []Sidecar
	questions map[string]Question
	answers   map[string]string
}

// rest waits before a change of sidecars is written, unless something else changes.
func (b *Board) rest(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-b.wake:
	case <-time.After(sidecarPause):
	}
}

// expire forgets the reports of replicas that ended without removing them.
func (b *Board) expire(ctx context.Context) {
	b.mu.Lock()
	var gone []string
	changed := false
	for name, w := range b.others {
		age := time.Since(w.seen)
		if age > boardAge && w.proxies != nil {
			b.others[name] = replicaReport{seen: w.seen}
			b.hold()
			changed = true
		}
		if age > boardGone {
			gone = append(gone, name)
		}
	}
	b.mu.Unlock()
	for _, name := range gone {
		b.Logger.Info("removing the state of a replica that is gone", "configmap", b.Namespace+"/"+name)
		b.remove(ctx, name)
	}
	if changed {
		b.Changed()
	}
}

// read takes the report of another replica.
func (b *Board) read(o any, gone bool) {
	if d, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = d.Obj
	}
	c, ok := o.(*corev1.ConfigMap)
	if !ok || c.Name == b.Name {
		return
	}
	r := replicaReport{address: c.Data[addressKey], seen: time.Now(), answering: c.Data[answeringKey] == "true"}
	if !gone {
		var errs [4]error
		r.proxies, errs[0] = unpack(c.BinaryData[boardKey])
		r.sidecars, errs[1] = unpackSidecars(c.BinaryData[sidecarsKey])
		r.questions, errs[2] = unpacked[Question](c.BinaryData[questionsKey])
		r.answers, errs[3] = unpacked[string](c.BinaryData[answersKey])
		if err := errors.Join(errs[:]...); err != nil {
			b.Logger.Warn("cannot read the state of another replica", "configmap", c.Namespace+"/"+c.Name, "reason", err)
		}
	}
	b.mu.Lock()
	old := b.others[c.Name]
	same := reflect.DeepEqual(old.proxies, r.proxies) && maps.Equal(old.answers, r.answers)
	if b.others == nil {
		b.others = map[string]replicaReport{}
	}
	if gone {
		delete(b.others, c.Name)
	} else {
		b.others[c.Name] = r
	}
	b.hold()
	b.mu.Unlock()
	if !same {
		b.Changed()
	}
	if !reflect.DeepEqual(old.questions, r.questions) {
		b.Tell()
	}
}

func (b *Board) write(ctx context.Context, w *word) error {
	ctx, cancel := context.WithTimeout(ctx, boardTimeout)
	defer cancel()
	data, err := pack(w.running)
	if err != nil {
		return err
	}
	words := map[string][]byte{boardKey: data}
	if len(w.sidecars) > 0 {
		packed, left, err := packSidecars(w.sidecars)
		if err != nil {
			return err
		}
		if words[sidecarsKey] = packed; left > 0 {
			b.Logger.Warn("other replicas are not told of all sidecars, as there are too many: what these count is missing there", "left", left)
		}
	}
	if len(w.questions) > 0 { // those that are left out are asked again when others are answered
		if words[questionsKey], _, err = packed(w.questions); err != nil {
			return err
		}
	}
	if len(w.answers) > 0 {
		if words[answersKey], _, err = packed(w.answers); err != nil {
			return err
		}
	}
	c := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Name, Labels: map[string]string{BoardLabel: BoardValue}},
		Data:       map[string]string{renewedKey: time.Now().UTC().Format(time.RFC3339), addressKey: b.Address, answeringKey: strconv.FormatBool(b.Answer != nil)},
		BinaryData: words,
	}
	if b.Pod != nil {
		c.OwnerReferences = []metav1.OwnerReference{*b.Pod}
	}
	// No other replica writes it, so there are no conflicts.
	if err = b.Client.Update(ctx, c); apierrors.IsNotFound(err) {
		err = b.Client.Create(ctx, c)
	}
	return err
}

func (b *Board) remove(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, boardTimeout)
	defer cancel()
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: name}}
	if err := b.Client.Delete(ctx, c); err != nil && !apierrors.IsNotFound(err) {
		b.Logger.Warn("removing the state of the proxies failed", "configmap", b.Namespace+"/"+name, "reason", err)
	}
}

func pack(running map[model.Owner][]feed.Proxy) ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if err := errors.Join(json.NewEncoder(z).Encode(running), z.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func unpack(data []byte) (map[model.Owner][]feed.Proxy, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	var out map[model.Owner][]feed.Proxy
	err = json.NewDecoder(io.LimitReader(z, boardSize)).Decode(&out)
	return out, err
}

// Newest joins reports about proxies. Of several about one proxy it keeps the latest.
func Newest(all ...[]feed.Proxy) []feed.Proxy {
	by := map[string]feed.Proxy{}
	for _, proxies := range all {
		for _, p := range proxies {
			if old, ok := by[p.Name]; !ok || p.Since.After(old.Since) {
				by[p.Name] = p
			}
		}
	}
	return slices.SortedFunc(maps.Values(by), func(a, b feed.Proxy) int { return cmp.Compare(a.Name, b.Name) })
}

// ReadBoard returns what proxies run by the reports of all replicas of the controller in a namespace, by owner.
func ReadBoard(ctx context.Context, reader client.Reader, namespace string) (map[model.Owner][]feed.Proxy, error) {
	var list corev1.ConfigMapList
	if err := reader.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{BoardLabel: BoardValue}); err != nil {
		return nil, err
	}
	out := map[model.Owner][]feed.Proxy{}
	for _, c := range list.Items {
		said, err := unpack(c.BinaryData[boardKey])
		if err != nil {
			return nil, fmt.Errorf("ConfigMap %s/%s: %w", c.Namespace, c.Name, err)
		}
		for owner, proxies := range said {
			out[owner] = Newest(out[owner], proxies)
		}
	}
	return out, nil
}
