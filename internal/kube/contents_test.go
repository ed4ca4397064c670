package kube

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weirmesh/weir/internal/resource"
)

// TestASetWaitsForWhatWasNeverRead checks that a Secret that is unreadable for a moment does not look deleted, and that
// an unreadable one does not delay everything else for long.
func TestASetWaitsForWhatWasNeverRead(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cert", ResourceVersion: "7"}}
	for _, tt := range []struct {
		name    string
		err     error
		waits   int
		objects bool
	}{
		{"nobody answers", errors.New("connection refused"), triesUnanswered - 1, false},
		{"the answer is an error", apierrors.NewInternalError(errors.New("unable to transform key")), triesAnswered - 1, false},
		{"it may not be read", apierrors.NewForbidden(secrets, "cert", nil), 0, false},
		{"it was read before", errors.New("connection refused"), 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, into := newContents(nil, resource.Kubernetes(), slog.New(slog.DiscardHandler)), resource.NewCollection(resource.Kubernetes())
			k := resource.Key{Kind: "Secret", Namespace: "shop", Name: "cert"}
			c.want(map[resource.Key]bool{k: true}, into, time.Now())
			if tt.objects {
				c.take(reading{key: k, object: object}, into)
			}
			waits := 0
			for range 2 * triesUnanswered {
				c.take(reading{key: k, err: tt.err}, into)
				if _, wait := c.awaited(); wait {
					waits++
				}
			}
			if waits != tt.waits {
				t.Errorf("a set waits for %d tries, want %d", waits, tt.waits)
			}
			c.take(reading{key: k, object: object}, into)
			if at, wait := c.awaited(); wait {
				t.Errorf("a set waits for %v, which was read", at)
			}
		})
	}
}
