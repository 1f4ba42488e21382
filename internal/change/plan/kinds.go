package plan

import (
	"slices"

	"github.com/theseus-cni/theseus/internal/change/encapsulation"
	"github.com/theseus-cni/theseus/internal/change/guard"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/pool"
	"github.com/theseus-cni/theseus/internal/change/reflectors"
	"github.com/theseus-cni/theseus/internal/change/replace"
	"github.com/theseus-cni/theseus/internal/change/rollout"
	"github.com/theseus-cni/theseus/internal/change/upgrade"
	"github.com/theseus-cni/theseus/internal/step"
)

// kinds are all of them, in the order in which they are asked: the last that a change can ask for takes what no other
// does.
func kinds() []kind.Kind {
	return []kind.Kind{
		encapsulation.Kind(),
		pool.Kind(),
		reflectors.Kind(),
		rollout.Kind(),
		upgrade.Kind(),
		guard.Kind(),
		mirror.Kind(),
		replace.Kind(),
	}
}

// asked is the kind that a change is of.
func asked(r *kind.Request) kind.Kind {
	all := kinds()
	for _, k := range all {
		if k.Asked != nil && k.Asked(r) {
			return k
		}
	}
	return all[len(all)-1]
}

// alone refuses a change that asks for more than the kind that makes its plan: a plan makes one change, and the rest
// would be dropped without a word. Kinds that are asked for by the name of a network come after all others.
func alone(k kind.Kind, r *kind.Request) error {
	if k.ByName {
		return nil
	}
	also := ""
	switch {
	case r.Change.To != "":
		also = "a network"
	case r.Change.Strategy != "":
		also = "a strategy"
	case r.Change.PodCIDR != "":
		also = "a pod CIDR"
	}
	for _, other := range kinds() {
		if also == "" && other.Name != k.Name && !other.ByName && other.Asked != nil && other.Asked(r) {
			also = other.Name
		}
	}
	if also == "" {
		return nil
	}
	return kind.Refuse("make two plans, one after the other",
		"a plan makes one change: %s cannot be combined with %s", k.Name, also)
}

// TakesBack says whether an inverse that a journal holds takes an action back, of an operation that plans of one kind
// alone have.
func TakesBack(a, inverse step.Action) bool {
	return slices.ContainsFunc(kinds(), func(k kind.Kind) bool { return k.TakesBack != nil && k.TakesBack(a, inverse) })
}

// of is the kind that a plan is of.
func of(p *Plan) kind.Kind {
	all := kinds()
	for _, k := range all {
		if k.Of(p) {
			return k
		}
	}
	return all[len(all)-1]
}
