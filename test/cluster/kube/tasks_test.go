package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/kube/replica"
)

// TestALostLeaseEndsTheLeadersTasksAlone takes the lease from a controller and gives it back: what every replica does goes on, and none of it fails.
func TestALostLeaseEndsTheLeadersTasksAlone(t *testing.T) {
	ensureNamespace(t, own)
	convertible(t)
	lease := &coordinationv1.Lease{ObjectMeta: named(own, "weir-controller")}
	t.Cleanup(func() {
		for _, o := range []client.Object{&corev1.Secret{ObjectMeta: named(own, replica.AuthorityName)}, lease} {
			_ = admin.Delete(context.Background(), o)
		}
	})
	p := startController(t, "a")
	stand := func(leaders string) {
		t.Helper()
		err := within(t.Context(), func() error {
			var status struct {
				Tasks []struct {
					Name, State, LastError string
					Lease                  bool
				}
			}
			response, err := http.Get("http://" + p.admin + "/status")
			if err != nil {
				return err
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			if err != nil {
				return err
			}
			if err := json.Unmarshal(text, &status); err != nil || len(status.Tasks) == 0 {
				return fmt.Errorf("%w: %s", err, text)
			}
			for _, s := range status.Tasks {
				want := "running"
				if s.Lease {
					want = leaders
				}
				if s.State != want || s.LastError != "" {
					return fmt.Errorf("%+v, want %s", s, want)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatalf("%v\n%s", err, p.log.String())
		}
	}
	held := func(by string) {
		t.Helper()
		err := within(t.Context(), func() error {
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); err != nil {
				return err
			}
			now, long := metav1.NowMicro(), int32(3600)
			lease.Spec.HolderIdentity, lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = &by, &now, &long
			return admin.Update(t.Context(), lease)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	stand("running")
	held("a thief")
	time.Sleep(10 * time.Second) // so long it tries to renew the lease
	stand("standby")
	held("")
	stand("running")
}
