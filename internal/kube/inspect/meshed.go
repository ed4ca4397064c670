package inspect

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/internal/inject"
	"github.com/weirmesh/weir/internal/kube/replica"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/workload"
)

const (
	// sidecarStart is how long a sidecar may take to reach the controller, and that to tell of it.
	sidecarStart = time.Minute
	// sidecarEnds is how long before its end a certificate should have been renewed: a quarter of its life.
	sidecarEnds = 6 * time.Hour
)

// SidecarSummary is how the sidecars of a cluster stand, in numbers of pods.
type SidecarSummary struct {
	// Pods have a sidecar; of Ready ones it serves.
	Pods  int `json:"pods"`
	Ready int `json:"ready"`
	// Connected follow the controller; nil if that may not be read, as are the next three.
	Connected *int `json:"connected,omitempty"`
	// Behind serve an old configuration, Failing could not apply the newest one, or not all of it.
	Behind  int `json:"behind,omitempty"`
	Failing int `json:"failing,omitempty"`
	// Ending have a certificate that should have been renewed, or has ended. First is when the first one of all ends.
	Ending int        `json:"ending,omitempty"`
	First  *time.Time `json:"firstCertificateEnds,omitempty"`
	// OtherImage have another image than new pods get.
	OtherImage int `json:"otherImage,omitempty"`
	// Without run without the sidecar that they ask for.
	Without int `json:"without,omitempty"`
}

// String is what is in its line.
func (s *SidecarSummary) String() string {
	text := fmt.Sprintf("%d of %s ready", s.Ready, pods(s.Pods))
	if s.Connected != nil {
		text += fmt.Sprintf(", %d connected", *s.Connected)
	}
	for _, part := range []struct {
		n    int
		what string
	}{{s.Behind, "behind"}, {s.Failing, "failing"}, {s.Ending, "with certificates that are due"}, {s.OtherImage, "of another image"}, {s.Without, "missing"}} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}
	if s.First != nil {
		text += ", certificates until " + s.First.UTC().Format("2006-01-02 15:04Z")
	}
	return text
}

func pods(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}

// meshed is how the sidecars of a namespace's pods stand; each has names of pods.
type meshed struct {
	with, ready, connected, away, behind, failing, ending, image, without []string
	first                                                                 time.Time // when the first certificate ends
}

// stand judges the pods of a namespace.
func (c *Cluster) stand(n *SidecarNamespace, now time.Time) (out meshed) {
	labels := map[string]string{inject.Label: n.Label}
	for i := range n.Pods {
		p := &n.Pods[i]
		if _, has := p.Annotations[inject.Annotation]; !has {
			if d := c.Controller.Sidecars.Ask(n.Name, labels, p); d.Outcome == inject.Injected || d.Outcome == inject.Refused {
				out.without = append(out.without, p.Name)
			}
			continue
		}
		out.with = append(out.with, p.Name)
		ready, since := sidecarOf(p)
		if ready {
			out.ready = append(out.ready, p.Name)
		}
		if image := imageOf(p); image != "" && c.Controller.Sidecars.Image != "" && image != c.Controller.Sidecars.Image {
			out.image = append(out.image, p.Name)
		}
		s, connected := c.Sidecars.Connected[n.Name+"/"+p.Name]
		switch {
		case !c.Sidecars.ConnectedSeen:
			continue
		case connected:
			out.connected = append(out.connected, p.Name)
		case !since.IsZero() && now.Sub(since) > sidecarStart:
			out.away = append(out.away, p.Name)
		}
		if s.Behind {
			out.behind = append(out.behind, p.Name)
		}
		if s.Wrong {
			out.failing = append(out.failing, p.Name)
		}
		if s.Ends > 0 {
			ends := time.Unix(s.Ends, 0)
			if out.first.IsZero() || ends.Before(out.first) {
				out.first = ends
			}
			if ends.Sub(now) < sidecarEnds {
				out.ending = append(out.ending, p.Name)
			}
		}
	}
	return out
}

// sidecarOf reports whether a pod's sidecar is ready, and since when it runs; zero if it does not.
func sidecarOf(p *corev1.Pod) (ready bool, since time.Time) {
	for i := range p.Status.InitContainerStatuses {
		if s := &p.Status.InitContainerStatuses[i]; s.Name == workload.SidecarContainer {
			if s.State.Running != nil {
				since = s.State.Running.StartedAt.Time
			}
			return s.Ready, since
		}
	}
	return false, time.Time{}
}

func imageOf(p *corev1.Pod) string {
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.Name == workload.SidecarContainer {
			return c.Image
		}
	}
	return ""
}

// sidecarSummary is about those of a namespace, or of all if that is empty; nil if the controller makes no sidecars.
func (c *Cluster) sidecarSummary(now time.Time, namespace string) *SidecarSummary {
	if c.Sidecars == nil {
		return nil
	}
	s := &SidecarSummary{}
	connected := 0
	for _, n := range c.Sidecars.Namespaces {
		if namespace != "" && n.Name != namespace {
			continue
		}
		m := c.stand(n, now)
		s.Pods, s.Ready, s.Without, s.OtherImage = s.Pods+len(m.with), s.Ready+len(m.ready), s.Without+len(m.without), s.OtherImage+len(m.image)
		s.Behind, s.Failing, s.Ending = s.Behind+len(m.behind), s.Failing+len(m.failing), s.Ending+len(m.ending)
		connected += len(m.connected)
		if !m.first.IsZero() && (s.First == nil || m.first.Before(*s.First)) {
			s.First = &m.first
		}
	}
	if c.Sidecars.ConnectedSeen {
		s.Connected = &connected
	}
	return s
}

// meshed reports sidecars of a namespace that do not stand as they should.
func (j *judge) meshed(n *SidecarNamespace, now time.Time) {
	m := j.stand(n, now)
	ref := model.Ref{Kind: "Namespace", Name: n.Name}
	ended := slices.ContainsFunc(m.ending, func(name string) bool {
		return time.Unix(j.Sidecars.Connected[n.Name+"/"+name].Ends, 0).Before(now)
	})
	for _, of := range []struct {
		pods         []string
		message, fix string
		severity     resource.Severity
	}{
		{m.away, "the sidecars of these pods are not connected to the controller: they serve what they have until their certificates end, and hear of no change", "see the logs of the containers " + workload.SidecarContainer, resource.Warning},
		{m.behind, "the sidecars of these pods serve an older configuration than they were given", "it clears within seconds of a change; otherwise see the controller's log and theirs", resource.Warning},
		{m.failing, "the sidecars of these pods could not apply the newest configuration, or not all of it, or some of it is too large to be sent to them; they serve the previous one", "see their logs, and the controller's", resource.Error},
		{m.ending, "the certificates of these pods should have been renewed, and end soon, or have ended", "see the controller's log and theirs; without one, they reach and serve nobody by mutual TLS", endingSeverity(ended)},
		{m.image, "the sidecars of these pods have another image than new pods get, " + j.Controller.Sidecars.Image, fmt.Sprintf("create them anew: kubectl -n %s rollout restart deployments,statefulsets,daemonsets", n.Name), resource.Info},
	} {
		if len(of.pods) > 0 {
			j.add(CodeSidecarState, ref, "", few(of.pods)+": "+of.message, of.fix).Severity = of.severity
		}
	}
}

func endingSeverity(ended bool) resource.Severity {
	if ended {
		return resource.Error
	}
	return resource.Warning
}

// know takes which sidecars are connected to the controller.
func (s *Sidecars) know(all []replica.Sidecar) {
	s.Connected, s.ConnectedSeen = make(map[string]replica.Sidecar, len(all)), true
	for _, one := range all {
		s.Connected[one.Pod] = one
	}
}
