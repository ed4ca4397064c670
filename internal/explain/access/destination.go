package access

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weirmesh/weir/internal/curl"
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
)

// Service is the Service that a call goes to.
type Service struct {
	Ref model.Ref `json:"ref"`
	// Port is the Service's port; 0 for a headless Service, whose clients choose among the pods' ports.
	Port int32 `json:"port,omitempty"`
}

// HostError is that a call goes to nothing that is known.
type HostError struct {
	Host, Reason string
	There        []string
}

func (e *HostError) Error() string { return fmt.Sprintf("host %q: %s", e.Host, e.Reason) }

// destination finds the workloads that a call leads to, and on which of their ports.
func (s *Served) destination(a *Answer, r *curl.Request) error {
	host := strings.TrimSuffix(strings.ToLower(r.Address), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return s.address(a, r, ip)
	}
	namespace := cmp.Or(a.Client.Ref.Namespace, defaultNamespace)
	labels := strings.Split(host, ".")
	if i := slices.Index(labels, "svc"); i >= 2 {
		labels = labels[:i]
	}
	pod := ""
	switch len(labels) {
	case 1:
	case 2:
		namespace = labels[1]
	case 3:
		pod, namespace, labels = labels[0], labels[2], labels[1:]
	default:
		return &HostError{host, "is no Service's: want NAME, NAME.NAMESPACE, NAME.NAMESPACE.svc or a pod's address", s.services()}
	}
	service := s.Set.Service(namespace, labels[0])
	if service == nil {
		why := fmt.Sprintf("there is no Service %s/%s", namespace, labels[0])
		if len(labels) == 1 {
			why += ", which it means for a client of namespace " + namespace
		}
		return &HostError{host, why, s.services()}
	}
	return s.toService(a, r, service, pod)
}

// services are all Services, as hosts.
func (s *Served) services() (all []string) {
	for _, x := range s.Set.Services {
		all = append(all, x.Name+"."+x.Namespace)
	}
	slices.Sort(all)
	return all
}

// address is the destination of a call to an IP address.
func (s *Served) address(a *Answer, r *curl.Request, ip netip.Addr) error {
	same := func(text string) bool {
		other, err := netip.ParseAddr(text)
		return err == nil && other.Unmap() == ip.Unmap()
	}
	for _, x := range s.Set.Services {
		if same(x.Spec.ClusterIP) || slices.ContainsFunc(x.Spec.ClusterIPs, same) {
			return s.toService(a, r, x, "")
		}
	}
	var there []string
	for _, w := range s.workloads() {
		if slices.ContainsFunc(w.Addresses, same) {
			s.add(a, &w, r.WantedPort())
		}
		there = append(there, w.Addresses...)
	}
	if a.Targets == nil {
		return &HostError{ip.String(), "is the address of no pod and no Service that was read", there}
	}
	return nil
}

// toService adds the workloads that calls to a Service get to; pod, if it is not empty, is the only one.
func (s *Served) toService(a *Answer, r *curl.Request, service *corev1.Service, pod string) error {
	ref := model.Ref{Kind: model.KindService, Namespace: service.Namespace, Name: service.Name}
	a.Service = &Service{Ref: ref}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		a.Reason = fmt.Sprintf("the Service stands for the host %s, in front of which no rule is", service.Spec.ExternalName)
		return nil
	}
	port, err := servicePort(a, r, service)
	if err != nil {
		return err
	}
	if pod == "" && port != nil && s.routed(a, r, service, port) {
		return nil
	}
	s.splits(a, service)
	return s.toPods(a, r, service, port, pod)
}

// toPods adds the workloads that a Service selects; pod, if it is not empty, is the only one.
func (s *Served) toPods(a *Answer, r *curl.Request, service *corev1.Service, port *corev1.ServicePort, pod string) error {
	ref := model.Ref{Kind: model.KindService, Namespace: service.Namespace, Name: service.Name}
	if len(service.Spec.Selector) == 0 {
		a.Reason = "the Service has no selector, so it is not known whose addresses its endpoints are"
		return nil
	}
	for _, w := range s.workloads() {
		if w.Ref.Namespace != ref.Namespace || !slices.ContainsFunc(w.Groups, func(g model.Group) bool { return g.Kind == model.KindService && g.Name == ref.Name }) {
			continue
		}
		if pod != "" && !has(&w, pod) {
			continue
		}
		s.add(a, &w, s.podPort(&w, service, port, r))
	}
	if a.Targets == nil {
		a.Reason = "the Service selects no pods that were read"
		if pod != "" {
			a.Reason = fmt.Sprintf("no pod %s of the Service was read", pod)
		}
	}
	return nil
}

// has reports whether a pod is one of a workload's, as far as its name tells.
func has(w *model.Workload, pod string) bool {
	if w.Ref.Kind == model.KindPod {
		return w.Ref.Name == pod
	}
	number, ok := strings.CutPrefix(pod, w.Ref.Name+"-")
	_, err := strconv.ParseUint(number, 10, 31)
	return w.Ref.Kind == "StatefulSet" && ok && err == nil
}

// servicePort finds the Service's port that is asked; nil for a headless Service, if the URL has a port.
func servicePort(a *Answer, r *curl.Request, service *corev1.Service) (*corev1.ServicePort, error) {
	var all []*corev1.ServicePort
	var names []string
	for i := range service.Spec.Ports {
		if p := &service.Spec.Ports[i]; p.Protocol != corev1.ProtocolUDP {
			all = append(all, p)
			names = append(names, strings.TrimSpace(fmt.Sprintf("%d %s", p.Port, p.Name)))
		}
	}
	if service.Spec.ClusterIP == corev1.ClusterIPNone && (r.Port != 0 || len(all) == 0) {
		return nil, nil
	}
	at := slices.IndexFunc(all, func(p *corev1.ServicePort) bool { return p.Port == r.WantedPort() })
	switch {
	case at >= 0:
	case r.Port == 0 && len(all) == 1:
		at = 0
		a.Notes = append(a.Notes, fmt.Sprintf("the Service has no port %d; taken is its only one, %d", r.WantedPort(), all[0].Port))
	default:
		return nil, &HostError{r.Address, fmt.Sprintf("%s has no port %d; write one of its ports into the URL", finding.Object(a.Service.Ref), r.WantedPort()), names}
	}
	a.Service.Port = all[at].Port
	return all[at], nil
}

// podPort is the port of a workload's pods that a call arrives at; 0 if there is none. A nil port of the Service is that
// of the URL.
func (s *Served) podPort(w *model.Workload, service *corev1.Service, p *corev1.ServicePort, r *curl.Request) int32 {
	switch {
	case p == nil:
		return r.WantedPort()
	case p.TargetPort.Type == intstr.String:
		for _, c := range s.portsOf(w.Ref) {
			if c.Name == p.TargetPort.StrVal && !c.UDP {
				return c.Number
			}
		}
		return 0
	case p.TargetPort.IntVal == 0:
		return p.Port
	}
	return p.TargetPort.IntVal
}

// splits tells of splits of the Service, whose leaves get the calls.
func (s *Served) splits(a *Answer, service *corev1.Service) {
	root := fmt.Sprintf("%s/%s:", service.Namespace, service.Name)
	for i := range s.Config.Splits {
		split := &s.Config.Splits[i]
		if !strings.HasPrefix(split.Root, root) || a.Service.Port != 0 && split.Root != root+strconv.Itoa(int(a.Service.Port)) {
			continue
		}
		var leaves []string
		for _, l := range split.Leaves {
			if l.Weight > 0 && l.Service != "" {
				leaves = append(leaves, l.Service)
			}
		}
		a.Notes = append(a.Notes, fmt.Sprintf("%s divides its traffic among %s: ask for each of these, too", finding.Object(split.Ref), strings.Join(finding.First(leaves, maxListed), ", ")))
	}
}
