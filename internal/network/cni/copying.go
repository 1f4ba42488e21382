package cni

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// Copier is a driver whose settings can be copied to the same network of another cluster, on which a change is
// rehearsed.
type Copier interface {
	Driver
	// Copy decides which settings of the original's network the other cluster's network gets.
	Copy(*Copying) (*Copied, error)
	// Settings compares the settings of both networks. plays names the other cluster's node for each of the original.
	Settings(original, copied *cluster.Snapshot, plays map[string]string) []Setting
}

// Copying is two clusters with the same network, the first of which is copied to the second.
type Copying struct {
	Original, Scratch *cluster.Snapshot
	Ours, Theirs      *Installation
	// Manifest is what installs the network of the second cluster, if it has none yet.
	Manifest []unstructured.Unstructured
	// Plays are the second cluster's nodes, by the original's node that each plays.
	Plays map[string]string
	// Proxied is the range that the second cluster's kube-proxy takes for that of pods, if it is set.
	Proxied string
}

// Copied is what the second cluster's network gets.
type Copied struct {
	// Objects are made, or replace spec or data of the object that is there.
	Objects []*unstructured.Unstructured
	// Restart are workloads that read the objects only when they start.
	Restart []step.Ref
	// Said are the objects for people; Lacks are settings that the second cluster cannot have.
	Said  []CopiedObject
	Lacks []CopyLack
}

// CopiedObject is an object of the original's network, and what becomes of it.
type CopiedObject struct {
	Object string `json:"object"`
	Copy   string `json:"copy"`
}

// CopyLack is a setting that the other cluster cannot have, and what follows.
type CopyLack struct{ What, Follows string }

// Lack adds to what the other cluster cannot have.
func (c *Copied) Lack(what, follows string) { c.Lacks = append(c.Lacks, CopyLack{what, follows}) }

// Say notes what becomes of an object.
func (c *Copied) Say(object, format string, args ...any) {
	c.Said = append(c.Said, CopiedObject{object, fmt.Sprintf(format, args...)})
}

// The areas of settings that every network has.
const (
	// AreaRanges are ranges of addresses: those of two clusters often have to differ.
	AreaRanges = "ranges of pods"
	AreaMTU    = "MTU"
)

// Setting is a setting of a network, as text; empty if it is not set.
type Setting struct {
	Area, Name, Original, Copy string
	// Links says that the MTU of the links between nodes decides whether another cluster can have it.
	Links bool
}

// CompareFields compares the fields of two objects, such as their specs.
func CompareFields(area, of string, original, copied map[string]any, without ...string) []Setting {
	keys := map[string]bool{}
	for _, fields := range []map[string]any{original, copied} {
		for key := range fields {
			keys[key] = !slices.Contains(without, key)
		}
	}
	var all []Setting
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if keys[key] {
			all = append(all, Setting{Area: area, Name: of + key, Original: FieldText(original[key]),
				Copy: FieldText(copied[key])})
		}
	}
	return all
}

// FieldText is the value of a field for people, and for comparison; empty if it is not set.
func FieldText(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return value
	}
	text, err := json.Marshal(value)
	if err != nil { // only values that JSON does not have
		return fmt.Sprint(value)
	}
	return string(text)
}

// Clash says which address or range of the second cluster a range of pods would overlap; empty if it overlaps none.
func (c *Copying) Clash(prefix netip.Prefix) string {
	overlaps := func(text string) bool {
		other, err := netip.ParsePrefix(text)
		if ip, single := netip.ParseAddr(text); err != nil && single == nil {
			other, err = netip.PrefixFrom(ip, ip.BitLen()), nil
		}
		return err == nil && prefix.Overlaps(other)
	}
	for i := range c.Scratch.Nodes {
		for _, address := range c.Scratch.Nodes[i].Status.Addresses {
			if overlaps(address.Address) {
				return "the address " + address.Address + " of its node " + c.Scratch.Nodes[i].Name
			}
		}
	}
	for _, object := range c.Scratch.OtherOf("networking.k8s.io", "ServiceCIDR") {
		ranges, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "cidrs")
		for _, text := range ranges {
			if overlaps(text) {
				return "the range of its Services " + text
			}
		}
	}
	for i := range c.Scratch.Services {
		service := &c.Scratch.Services[i]
		for _, ip := range append([]string{service.Spec.ClusterIP}, service.Spec.ClusterIPs...) {
			if overlaps(ip) {
				return "the address " + ip + " of its Service " + service.Namespace + "/" + service.Name
			}
		}
	}
	return ""
}

// Range is the range of pods of the second cluster: of its network, else that which its kube-proxy knows, else one that
// holds the ranges of its nodes. It is invalid if it is not known.
func (c *Copying) Range() netip.Prefix {
	var known []string
	if c.Manifest == nil {
		known = c.Theirs.PodCIDRs
	}
	for _, text := range append(known, c.Proxied) {
		if prefix, err := netip.ParsePrefix(text); err == nil && prefix.Addr().Is4() {
			return prefix.Masked()
		}
	}
	var all netip.Prefix
	for _, prefix := range c.NodeRanges() {
		for all.IsValid() && !Within(all, prefix) {
			all = netip.PrefixFrom(all.Addr(), all.Bits()-1).Masked()
		}
		if !all.IsValid() {
			all = prefix
		}
	}
	return all
}

// NodeRanges are the IPv4 ranges of the second cluster's nodes (spec.podCIDRs).
func (c *Copying) NodeRanges() (all []netip.Prefix) {
	for i := range c.Scratch.Nodes {
		for _, text := range RangesOf(&c.Scratch.Nodes[i]) {
			if prefix, err := netip.ParsePrefix(text); err == nil && prefix.Addr().Is4() {
				all = append(all, prefix.Masked())
			}
		}
	}
	return all
}

// Within reports whether one range holds another.
func Within(whole, part netip.Prefix) bool {
	return whole.Bits() <= part.Bits() && whole.Contains(part.Addr())
}

// Fit finds a part of a range of the same size as another one, or smaller if it is one of several that have to fit,
// that overlaps none that are taken. It is invalid if there is none.
func Fit(within, like netip.Prefix, several int, taken []netip.Prefix) netip.Prefix {
	length := max(like.Bits(), within.Bits()+bits.Len(uint(max(several, 1)-1)))
	const most = 1 << 16
	at := netip.PrefixFrom(within.Addr(), length)
	for n := 0; n < most && at.IsValid() && within.Contains(at.Addr()); n++ {
		if !slices.ContainsFunc(taken, at.Overlaps) {
			return at
		}
		at = next(at)
	}
	return netip.Prefix{}
}

// next is the range of the same size that follows an IPv4 range; invalid after the last one.
func next(prefix netip.Prefix) netip.Prefix {
	address := prefix.Addr().As4()
	number := uint64(address[0])<<24 | uint64(address[1])<<16 | uint64(address[2])<<8 | uint64(address[3])
	number += 1 << (32 - prefix.Bits())
	if number >= 1<<32 {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(number >> 24), byte(number >> 16), byte(number >> 8),
		byte(number)}), prefix.Bits())
}

// LinkMTU is the smallest MTU of the interfaces by which the second cluster's nodes reach each other; 0 if it is not
// known.
func (c *Copying) LinkMTU() int {
	smallest := 0
	for i := range c.Scratch.Facts {
		facts := &c.Scratch.Facts[i]
		for j := range c.Scratch.Nodes {
			if node := &c.Scratch.Nodes[j]; node.Name == facts.Node {
				if link := facts.Uplink(node); link != nil && (smallest == 0 || link.MTU < smallest) {
					smallest = link.MTU
				}
			}
		}
	}
	return smallest
}
