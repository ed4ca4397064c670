package resource

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	protocols     = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
	serviceTypes  = []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName}
	addressTypes  = []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN}
	maxEndpoints  = 1000 // of an EndpointSlice (pkg/apis/discovery/validation)
	maxAddresses  = 100  // of an endpoint
	maxSlicePorts = 20000
)

func checkService(o *corev1.Service) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if o.Spec.Type == "" {
		o.Spec.Type = corev1.ServiceTypeClusterIP
	}
	switch o.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		if len(o.Spec.Ports) == 0 && o.Spec.ClusterIP != corev1.ClusterIPNone {
			errs = append(errs, field.Required(spec.Child("ports"), ""))
		}
	case corev1.ServiceTypeExternalName:
		// A trailing dot is allowed: the name is looked up as written.
		if name := strings.TrimSuffix(o.Spec.ExternalName, "."); name == "" {
			errs = append(errs, field.Required(spec.Child("externalName"), ""))
		} else if _, err := netip.ParseAddr(name); err != nil {
			for _, msg := range utilvalidation.IsDNS1123Subdomain(name) {
				errs = append(errs, field.Invalid(spec.Child("externalName"), o.Spec.ExternalName, msg))
			}
		}
	default:
		errs = append(errs, field.NotSupported(spec.Child("type"), o.Spec.Type, serviceTypes))
	}
	errs = append(errs, metav1validation.ValidateLabels(o.Spec.Selector, spec.Child("selector"))...)
	if ip := o.Spec.ClusterIP; ip != "" && ip != corev1.ClusterIPNone && o.Spec.Type != corev1.ServiceTypeExternalName {
		if _, err := netip.ParseAddr(ip); err != nil {
			errs = append(errs, field.Invalid(spec.Child("clusterIP"), ip, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"))
		}
	}
	names := make(map[string]bool)
	numbers := make(map[string]bool)
	for i := range o.Spec.Ports {
		p, at := &o.Spec.Ports[i], spec.Child("ports").Index(i)
		if p.Protocol == "" {
			p.Protocol = corev1.ProtocolTCP
		}
		if p.TargetPort == (intstr.IntOrString{}) {
			p.TargetPort = intstr.FromInt32(p.Port)
		} else {
			errs = append(errs, checkTarget(at.Child("targetPort"), p.TargetPort)...)
		}
		if p.Name == "" && len(o.Spec.Ports) > 1 {
			errs = append(errs, field.Required(at.Child("name"), "a Service with several ports names each"))
		}
		errs = append(errs, checkPort(at, p.Name, names, p.Protocol, p.AppProtocol)...)
		errs = append(errs, checkNumber(at.Child("port"), p.Port)...)
		number := fmt.Sprintf("%s/%d", p.Protocol, p.Port)
		if numbers[number] {
			errs = append(errs, field.Duplicate(at, number))
		}
		numbers[number] = true
	}
	return errs
}

// checkPort checks the common part of ports of Services and of EndpointSlices.
func checkPort(at *field.Path, name string, names map[string]bool, protocol corev1.Protocol, app *string) (errs field.ErrorList) {
	if name != "" {
		for _, msg := range utilvalidation.IsDNS1123Label(name) {
			errs = append(errs, field.Invalid(at.Child("name"), name, msg))
		}
	}
	if names[name] {
		errs = append(errs, field.Duplicate(at.Child("name"), name))
	}
	names[name] = true
	switch protocol {
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
	default:
		errs = append(errs, field.NotSupported(at.Child("protocol"), protocol, protocols))
	}
	if app != nil {
		for _, msg := range utilvalidation.IsQualifiedName(*app) {
			errs = append(errs, field.Invalid(at.Child("appProtocol"), *app, msg))
		}
	}
	return errs
}

func checkNumber(at *field.Path, port int32) (errs field.ErrorList) {
	for _, msg := range utilvalidation.IsValidPortNum(int(port)) {
		errs = append(errs, field.Invalid(at, port, msg))
	}
	return errs
}

func checkTarget(at *field.Path, target intstr.IntOrString) (errs field.ErrorList) {
	if target.Type == intstr.Int {
		return checkNumber(at, target.IntVal)
	}
	for _, msg := range utilvalidation.IsValidPortName(target.StrVal) {
		errs = append(errs, field.Invalid(at, target.StrVal, msg))
	}
	return errs
}

func decodeEndpointSlice(k *Kind, _ string, u map[string]any, _ admission) (any, []Finding) {
	object, findings := decodeCore(k, u, checkEndpointSlice)
	if object == nil {
		return nil, findings
	}
	if object.Labels[discoveryv1.LabelServiceName] == "" {
		findings = append(findings, finding(CodeSliceOrphan, "metadata.labels",
			"the slice has no label "+discoveryv1.LabelServiceName+": it belongs to no Service"))
	}
	return object, findings
}

func checkEndpointSlice(o *discoveryv1.EndpointSlice) (errs field.ErrorList) {
	switch o.AddressType {
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN:
	case "":
		return field.ErrorList{field.Required(field.NewPath("addressType"), "")}
	default:
		return field.ErrorList{field.NotSupported(field.NewPath("addressType"), o.AddressType, addressTypes)}
	}
	if len(o.Endpoints) > maxEndpoints {
		errs = append(errs, field.TooMany(field.NewPath("endpoints"), len(o.Endpoints), maxEndpoints))
	}
	for i, e := range o.Endpoints {
		at := field.NewPath("endpoints").Index(i).Child("addresses")
		switch {
		case len(e.Addresses) == 0:
			errs = append(errs, field.Required(at, "must contain at least 1 address"))
		case len(e.Addresses) > maxAddresses:
			errs = append(errs, field.TooMany(at, len(e.Addresses), maxAddresses))
		}
		for j, address := range e.Addresses {
			if msg := checkAddress(o.AddressType, address); msg != "" {
				errs = append(errs, field.Invalid(at.Index(j), address, msg))
			}
		}
	}
	if len(o.Ports) > maxSlicePorts {
		errs = append(errs, field.TooMany(field.NewPath("ports"), len(o.Ports), maxSlicePorts))
	}
	names := make(map[string]bool)
	for i := range o.Ports {
		p, at := &o.Ports[i], field.NewPath("ports").Index(i)
		if p.Name == nil {
			p.Name = new(string)
		}
		if p.Protocol == nil {
			tcp := corev1.ProtocolTCP
			p.Protocol = &tcp
		}
		errs = append(errs, checkPort(at, *p.Name, names, *p.Protocol, p.AppProtocol)...)
		if p.Port != nil {
			errs = append(errs, checkNumber(at.Child("port"), *p.Port)...)
		}
	}
	return errs
}

// checkAddress returns what is wrong with an address. Unlike in a cluster, loopback and link-local addresses are valid:
// the endpoints may run on this machine.
func checkAddress(t discoveryv1.AddressType, address string) string {
	if t == discoveryv1.AddressTypeFQDN {
		return strings.Join(utilvalidation.IsDNS1123Subdomain(address), "; ")
	}
	ip, err := netip.ParseAddr(address)
	switch {
	case err != nil:
		return "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
	case ip.Is4() && t == discoveryv1.AddressTypeIPv6:
		return "must be an IPv6 address"
	case !ip.Is4() && t == discoveryv1.AddressTypeIPv4:
		return "must be an IPv4 address"
	case ip.IsUnspecified():
		return "must not be the unspecified address"
	case ip.IsMulticast():
		return "must not be a multicast address"
	}
	return ""
}

// legacyEndpoints is an Endpoints object as the slices a cluster's mirroring controller would make of it.
type legacyEndpoints struct {
	service name
	slices  []*discoveryv1.EndpointSlice
}

func decodeEndpoints(k *Kind, _ string, u map[string]any, _ admission) (any, []Finding) {
	object, findings := decodeCore(k, u, checkEndpoints)
	if object == nil {
		return nil, findings
	}
	legacy := &legacyEndpoints{service: name{object.Namespace, object.Name}}
	for i := range object.Subsets {
		legacy.slices = append(legacy.slices, sliceSubset(object, i)...)
	}
	return legacy, findings
}

//lint:ignore SA1019 old manifests still hold it
func checkEndpoints(o *corev1.Endpoints) (errs field.ErrorList) {
	for i := range o.Subsets {
		s, at := &o.Subsets[i], field.NewPath("subsets").Index(i)
		for list, addresses := range map[string][]corev1.EndpointAddress{"addresses": s.Addresses, "notReadyAddresses": s.NotReadyAddresses} {
			for j, a := range addresses {
				if _, err := netip.ParseAddr(a.IP); err != nil {
					errs = append(errs, field.Invalid(at.Child(list).Index(j).Child("ip"), a.IP, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"))
				}
			}
		}
		names := make(map[string]bool)
		for j := range s.Ports {
			p, at := &s.Ports[j], at.Child("ports").Index(j)
			if p.Protocol == "" {
				p.Protocol = corev1.ProtocolTCP
			}
			errs = append(errs, checkPort(at, p.Name, names, p.Protocol, p.AppProtocol)...)
			errs = append(errs, checkNumber(at.Child("port"), p.Port)...)
		}
	}
	return errs
}

// sliceSubset makes one slice for each address family of a subset.
//
//lint:ignore SA1019 old manifests still hold it
func sliceSubset(o *corev1.Endpoints, index int) []*discoveryv1.EndpointSlice {
	subset := o.Subsets[index]
	byType := make(map[discoveryv1.AddressType]*discoveryv1.EndpointSlice)
	add := func(a corev1.EndpointAddress, ready bool) {
		t := discoveryv1.AddressTypeIPv4
		if ip, _ := netip.ParseAddr(a.IP); !ip.Is4() {
			t = discoveryv1.AddressTypeIPv6
		}
		slice := byType[t]
		if slice == nil {
			slice = &discoveryv1.EndpointSlice{
				TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"},
				ObjectMeta: metav1.ObjectMeta{
					Namespace: o.Namespace, Name: fmt.Sprintf("%s-%d-%s", o.Name, index, strings.ToLower(string(t))),
					Labels: map[string]string{discoveryv1.LabelServiceName: o.Name},
				},
				AddressType: t,
			}
			for _, p := range subset.Ports {
				slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &p.Port, AppProtocol: p.AppProtocol})
			}
			byType[t] = slice
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a.IP}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
			NodeName: a.NodeName, TargetRef: a.TargetRef,
		})
	}
	for _, a := range subset.Addresses {
		add(a, true)
	}
	for _, a := range subset.NotReadyAddresses {
		add(a, false)
	}
	var out []*discoveryv1.EndpointSlice
	for _, t := range addressTypes {
		if byType[t] != nil {
			out = append(out, byType[t])
		}
	}
	return out
}
