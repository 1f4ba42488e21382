package calico

import (
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/network/cni"
)

// natKnobs are settings that change Felix's default masquerading, which is a plain MASQUERADE of traffic from a pool
// with natOutgoing to addresses outside of all pools.
var natKnobs = []string{"natOutgoingAddress", "natPortRange", "natOutgoingExclusions",
	"iptablesNATOutgoingInterfaceFilter"}

// plainNAT reports whether Felix uses its default masquerading on every node. env is the agent's environment.
func plainNAT(configurations []unstructured.Unstructured, env func(name string) string) bool {
	for _, name := range natKnobs {
		if env("FELIX_"+strings.ToUpper(name)) != "" {
			return false
		}
		for _, configuration := range configurations {
			if _, set, _ := unstructured.NestedFieldNoCopy(configuration.Object, "spec", name); set {
				return false
			}
		}
	}
	return true
}

// masqueraded is the traffic from IPv4 pools with natOutgoing to addresses outside of all pools. Felix includes
// disabled pools in both.
func masqueraded(pools, configurations []unstructured.Unstructured, env func(name string) string) *cni.Masquerade {
	var plain cni.Masquerade
	for _, object := range pools {
		text, _, _ := unstructured.NestedString(object.Object, "spec", "cidr")
		cidr, err := netip.ParsePrefix(text)
		if err != nil || !cidr.Addr().Is4() {
			continue
		}
		plain.Except = append(plain.Except, cidr.Masked().String())
		if outgoing, _, _ := unstructured.NestedBool(object.Object, "spec", "natOutgoing"); outgoing {
			plain.From = append(plain.From, cidr.Masked().String())
		}
	}
	if len(plain.From) == 0 || !plainNAT(configurations, env) {
		return nil
	}
	return &plain
}

// willMasquerade is masqueraded for a target: its own ranges, if its pools will have natOutgoing.
func willMasquerade(request cni.Request, outgoing bool, configurations []unstructured.Unstructured,
	env func(name string) string) *cni.Masquerade {
	if request.Takeover != nil {
		outgoing = !request.Source.Capabilities.KeepsSources
	}
	if !outgoing || !plainNAT(configurations, env) {
		return nil
	}
	plain := cni.Masquerade{From: rangesOf(request), Except: rangesOf(request)}
	if request.Source != nil && request.Takeover == nil {
		plain.Except = append(plain.Except, request.Source.PodCIDRs...)
	}
	return &plain
}
