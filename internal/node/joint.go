package node

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/step"
)

// jointComment marks the rules of a joint phase, so that they are found again whatever networks they name.
const jointComment = "theseus: joint phase"

// Values of rp_filter.
const (
	rpStrict = 1
	rpLoose  = 2
)

// onePort is an order for a network that stays alone: connections are kept off the port of its tunnels, and that is
// all.
func onePort(args step.JoinArgs) bool {
	return len(args.Old)+len(args.New) == 0 && args.Untracked != nil
}

// exemptions are the rules that keep traffic between the two networks free of masquerade, per family: a
// pod must see the other's true address, or policies by address would judge a node instead of a pod.
func exemptions(args step.JoinArgs) (map[family][]rule, error) {
	if onePort(args) {
		return nil, nil
	}
	old, err := prefixes(args.Old)
	if err != nil {
		return nil, err
	}
	fresh, err := prefixes(args.New)
	if err != nil {
		return nil, err
	}
	rules := map[family][]rule{}
	for _, a := range old {
		for _, b := range fresh {
			if a == b {
				// One range that is taken over: neither network masquerades within it, and kube-proxy does for a pod
				// that reaches itself through a Service.
				return nil, nil
			}
			if a.Addr().Is4() != b.Addr().Is4() {
				continue
			}
			f := familyOf(a)
			rules[f] = append(rules[f], exemption(a, b), exemption(b, a))
		}
	}
	for _, a := range fresh {
		for _, b := range fresh {
			if args.Within && a.Addr().Is4() == b.Addr().Is4() {
				rules[familyOf(a)] = append(rules[familyOf(a)], within(a, b))
			}
		}
	}
	if len(rules) == 0 {
		return nil, fmt.Errorf("no pair of networks in %v and %v", args.Old, args.New)
	}
	return rules, nil
}

func exemption(from, to netip.Prefix) rule {
	return rule{"POSTROUTING", fmt.Sprintf("-s %s -d %s -m comment --comment %q -j ACCEPT", from, to, jointComment)}
}

// within is exemption between pods of the target, but for what kube-proxy (0x4000) or the plugin portmap (0x2000) has
// marked: a pod that reaches itself through a Service or a port of its node gets no answer without being masqueraded.
func within(from, to netip.Prefix) rule {
	return rule{"POSTROUTING", fmt.Sprintf("-s %s -d %s -m mark --mark 0x0/0x6000 -m comment --comment %q -j ACCEPT",
		from, to, jointComment)}
}

// putFirst is the script that makes the wanted rules the first of POSTROUTING and the only ones with their
// comment, or takes those out when none is wanted; it is empty when all is so already. No rule before them could be
// harmless for sure: the first masquerade that matches decides for the whole connection.
func putFirst(rules, want []rule) string {
	var lines []string
	mine := 0
	for _, r := range rules {
		if r.comment() == jointComment {
			mine++
			lines = append(lines, "-D "+r.chain+" "+r.spec)
		}
	}
	first := mine == len(want) && len(rules) >= len(want)
	for _, w := range want {
		first = first && slices.ContainsFunc(rules[:len(want)], w.same)
	}
	if first {
		return ""
	}
	for _, w := range slices.Backward(want) {
		lines = append(lines, "-I "+w.chain+" 1 "+w.spec)
	}
	var script strings.Builder
	writeTable(&script, "nat", lines)
	return script.String()
}

// same compares two rules by their words, as quoting may differ.
func (r rule) same(other rule) bool {
	return r.chain == other.chain && slices.Equal(split(r.spec), split(other.spec))
}

// loosen says which values of rp_filter must change so that no interface filters strictly: packets between
// the networks come back on another tunnel than they left by. The kernel takes the larger of "all" and the
// interface's own value. "default" is what interfaces to come start with.
func loosen(now map[string]int) map[string]int {
	set := map[string]int{}
	for name, value := range now {
		if value == rpStrict {
			set[name] = rpLoose
		}
	}
	return set
}

// tighten says which values to write to take loosen back: those that are still as loosen left them, and
// those of interfaces that were born under a loosened default.
func tighten(now, former map[string]int) map[string]int {
	set := map[string]int{}
	for name, value := range now {
		if value != rpLoose {
			continue // another process has decided since
		}
		was, known := former[name]
		if !known && name != "all" {
			was, known = former["default"]
		}
		if known && was != value {
			set[name] = was
		}
	}
	return set
}
