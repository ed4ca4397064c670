package kube

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/resource"
)

const (
	// readTimeout bounds the reading of one Secret or ConfigMap. readers is how many are read at a time.
	readTimeout = 5 * time.Second
	readers     = 8
	// retryMost is the longest time between two attempts to read an object.
	retryMost = 30 * time.Second
	// triesAnswered and triesUnanswered limit the attempts to read an object that was never read. After them a Set is
	// made without the object: 3 s if the API server says why it cannot be read, 91 s if it does not answer.
	triesAnswered, triesUnanswered = 3, 8
)

// contents are the referenced Secrets and ConfigMaps. Its owner guards it with a lock.
type contents struct {
	client   *Client
	kinds    resource.Kinds
	log      *slog.Logger
	failures loglimit.Limiter
	wanted   map[resource.Key]*content
}

// content is the state of one of them.
type content struct {
	// version is the version of the last object read, empty if there was none.
	version string
	// stale means that there may be a newer one; told counts such notices.
	stale bool
	told  int
	// known means that it was read, or that it did not exist.
	known bool
	// err is why the last attempt to read it failed. The next attempt is at next.
	err   error
	tries int
	next  time.Time
}

func newContents(c *Client, kinds resource.Kinds, log *slog.Logger) *contents {
	return &contents{client: c, kinds: kinds, log: log, wanted: make(map[resource.Key]*content)}
}

// want sets the wanted keys, and returns those to read now. Unwanted objects leave the collection; left reports whether
// any did.
func (c *contents) want(keys map[resource.Key]bool, from *resource.Collection, now time.Time) (read []reading, left bool) {
	for k := range c.wanted {
		if !keys[k] {
			delete(c.wanted, k)
			from.Remove(k)
			left = true
		}
	}
	for k := range keys {
		w := c.wanted[k]
		if w == nil {
			w = &content{stale: true}
			c.wanted[k] = w
		}
		if w.stale && !now.Before(w.next) {
			read = append(read, reading{key: k, told: w.told})
		}
	}
	return read, left
}

// stale records that an object has the version, or is gone if version is empty. It reports whether the object is
// wanted.
func (c *contents) stale(k resource.Key, version string) bool {
	w := c.wanted[k]
	if w == nil {
		return false
	}
	w.told++ // it may be being read at this moment
	if w.version == version {
		return false
	}
	w.stale, w.next = true, time.Time{}
	return true
}

// due reports whether something must be tried again now.
func (c *contents) due(now time.Time) bool {
	for _, w := range c.wanted {
		if w.stale && !now.Before(w.next) {
			return true
		}
	}
	return false
}

// awaited returns an object that was never read and may be soon: without it, the Set would look as if it had been
// deleted. The wait is limited, so that an unreadable object does not delay everything else.
func (c *contents) awaited() (resource.Key, bool) {
	for k, w := range c.wanted {
		tries := triesAnswered
		if apierrors.ReasonForError(w.err) == metav1.StatusReasonUnknown {
			tries = triesUnanswered
		}
		if !w.known && w.err != nil && w.tries < tries && !apierrors.IsForbidden(w.err) {
			return k, true
		}
	}
	return resource.Key{}, false
}

func (c *contents) findings() (all []resource.Finding) {
	for _, k := range slices.SortedFunc(maps.Keys(c.wanted), compare) {
		if err := c.wanted[k].err; err != nil {
			all = append(all, resource.Unread(k, err))
		}
	}
	return all
}

// reading is the result of reading an object: the object, nil if it does not exist, or the error.
type reading struct {
	key resource.Key
	// told is the content's value of told before the read.
	told   int
	object client.Object
	err    error
}

// read reads the objects of keys from the API server, a few at a time. The caller need not hold the lock.
func (c *contents) read(ctx context.Context, keys []reading) []reading {
	out := slices.Clone(keys)
	var few errgroup.Group
	few.SetLimit(readers)
	for i := range keys {
		few.Go(func() error {
			out[i].object, out[i].err = c.readOne(ctx, keys[i].key)
			return nil
		})
	}
	few.Wait()
	return out
}

func (c *contents) readOne(ctx context.Context, k resource.Key) (client.Object, error) {
	of := c.kinds.Find(k.Group, k.Kind) // never nil: only keys of known kinds are requested
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	object, err := c.client.newObject(in(of, of.Versions[0]))
	if err != nil {
		return nil, err
	}
	err = c.client.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: k.Name}, object)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	strip(object)
	return object, nil
}

// take adds an object that was read to the collection.
func (c *contents) take(r reading, into *resource.Collection) {
	w := c.wanted[r.key]
	if w == nil {
		return
	}
	if r.err != nil {
		w.err = r.err
		w.next = time.Now().Add(min(time.Second<<min(w.tries, 10), retryMost))
		w.tries++
		c.failures.Log(c.log, slog.LevelError, "", "cannot read a referenced object", "object", r.key.String(), "error", r.err)
		return
	}
	w.known, w.stale, w.err, w.tries, w.next = true, w.told != r.told, nil, 0, time.Time{}
	if r.object == nil {
		w.version = ""
		into.Remove(r.key)
		return
	}
	w.version = r.object.GetResourceVersion()
	into.Put(resource.Adopt(c.kinds, r.object.(metav1.ObjectMetaAccessor)))
}
