package mirror

import (
	"reflect"
	"slices"

	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/safeio/canonical"
	"github.com/theseus-cni/theseus/internal/step"
)

// takesBack says whether an inverse that a journal holds is what takes an action of such a plan back.
func takesBack(a, inverse step.Action) bool {
	switch a.Do.(type) {
	case step.DNS:
		return inverse.Op() == step.OpDNS && namesBack(a, inverse)
	case step.Mirror:
		return inverse.Op() == step.OpMirror && mirrorBack(a, inverse)
	}
	return false
}

// namesBack is takesBack for names.
func namesBack(a, inverse step.Action) bool {
	switch a.Verb() {
	case shift.Prove:
		there, errThere := step.Arguments[shift.ProveArgs](a)
		back, errBack := step.Arguments[[]shift.SeeArgs](inverse)
		return inverse.Verb() == shift.See && errThere == nil && errBack == nil && reflect.DeepEqual(there.Back, back)
	case shift.Swap:
		there, errThere := step.Arguments[shift.SwapArgs](a)
		back, errBack := step.Arguments[shift.SwapArgs](inverse)
		return inverse.Verb() == shift.Swap && errThere == nil && errBack == nil && there.Zone == back.Zone &&
			!slices.ContainsFunc(back.Inverse().Units, func(u zone.Unit) bool {
				return !slices.ContainsFunc(there.Units, func(planned zone.Unit) bool {
					return reflect.DeepEqual(planned, u)
				})
			})
	}
	return false
}

// mirrorBack is takesBack for what is done to a cluster and its mirror.
func mirrorBack(a, inverse step.Action) bool {
	switch a.Verb() {
	case Freeze:
		return inverse.Verb() == Thaw
	case AddNames:
		return inverse.Verb() == TakeNames && canonical.Same(a.Args(), inverse.Args())
	case Cloud:
		there, errThere := step.Arguments[CloudArgs](a)
		back, errBack := step.Arguments[CloudArgs](inverse)
		there.Back = !there.Back
		return inverse.Verb() == Cloud && errThere == nil && errBack == nil && reflect.DeepEqual(there, back)
	}
	return false
}
