package zone

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Unit is one name's change: all sets of its addresses and of the TXT records that say who owns it, before and
// after. What is in neither is not touched, except that an address set that is not in Before must not be there.
type Unit struct {
	Name   string  `json:"name"`
	Before []RRSet `json:"before"`
	After  []RRSet `json:"after"`
}

// Transaction changes units of one zone together, or none of them.
type Transaction struct {
	Zone  string `json:"zone"`
	Units []Unit `json:"units"`
}

// Inverse takes the transaction back.
func (t Transaction) Inverse() Transaction {
	back := Transaction{Zone: t.Zone}
	for _, u := range t.Units {
		back.Units = append(back.Units, Unit{Name: u.Name, Before: u.After, After: u.Before})
	}
	return back
}

// Place is a name and type, with whatever set identifiers it has.
type Place struct{ Name, Type string }

// Places are everything that must be looked at before the unit is changed.
func (u Unit) Places() []Place {
	var places []Place
	for _, kind := range AddressTypes() {
		places = append(places, Place{u.Name, kind})
	}
	for _, set := range slices.Concat(u.Before, u.After) {
		if at := (Place{set.Name, set.Type}); !slices.Contains(places, at) {
			places = append(places, at)
		}
	}
	return places
}

// Places are those of all units.
func (t Transaction) Places() []Place {
	var places []Place
	for _, u := range t.Units {
		places = append(places, u.Places()...)
	}
	return places
}

// Absent are the places where nothing may be before the change.
func (u Unit) Absent() []Place {
	return slices.DeleteFunc(u.Places(), func(at Place) bool {
		return slices.ContainsFunc(u.Before, func(set RRSet) bool { return set.Name == at.Name && set.Type == at.Type })
	})
}

// Changes are the sets that go and those that come; a set that stays as it is is in neither.
func (u Unit) Changes() (gone, come []RRSet) {
	return without(u.Before, u.After), without(u.After, u.Before)
}

// State is where a unit stands.
type State int

// The states of a unit.
const (
	// Before: as expected before the change.
	Before State = iota
	// After: the change is made.
	After
	// Other: another client changed it.
	Other
)

// Current are the sets that a server has, by place.
type Current map[Place][]RRSet

// CurrentOf orders sets by place.
func CurrentOf(sets []RRSet) Current {
	current := Current{}
	for _, set := range sets {
		at := Place{set.Name, set.Type}
		current[at] = append(current[at], set)
	}
	return current
}

// State compares the unit with what a server has.
func (u Unit) State(current Current) State {
	switch {
	case u.is(u.After, current):
		return After
	case u.is(u.Before, current):
		return Before
	}
	return Other
}

// Between says whether each place has what was there before the change, or what is there after: of a provider that
// changes one set after the other, that is a change under way.
func (u Unit) Between(current Current) bool {
	before, after := CurrentOf(u.Before), CurrentOf(u.After)
	for _, at := range u.Places() {
		if has := Sorted(slices.Clone(current[at])); !same(has, before[at]) && !same(has, after[at]) {
			return false
		}
	}
	return true
}

func same(has, wanted []RRSet) bool {
	return slices.EqualFunc(has, Sorted(slices.Clone(wanted)), RRSet.Equal)
}

func (u Unit) is(wanted []RRSet, current Current) bool {
	n := 0
	for _, at := range u.Places() {
		for _, set := range current[at] {
			if !slices.ContainsFunc(wanted, set.Equal) {
				return false
			}
			n++
		}
	}
	return n == len(wanted)
}

// Differs says in words how what a server has differs from what was expected before the change.
func (u Unit) Differs(current Current) string {
	var found []RRSet
	for _, at := range u.Places() {
		found = append(found, current[at]...)
	}
	return fmt.Sprintf("%s is %s, and not %s", u.Name, words(without(found, u.Before)), words(without(u.Before, found)))
}

func without(sets, others []RRSet) []RRSet {
	return slices.DeleteFunc(slices.Clone(sets), func(set RRSet) bool { return slices.ContainsFunc(others, set.Equal) })
}

func words(sets []RRSet) string {
	if len(sets) == 0 {
		return "without a record"
	}
	var lines []string
	for _, set := range sets {
		lines = append(lines, "`"+set.String()+"`")
	}
	return strings.Join(lines, " and ")
}

// ErrConflict says that records were not as expected, and that nothing was changed for that reason.
var ErrConflict = errors.New("another program or person changed the records")

// ErrRefused says that a server will not take changes from us: trying again does not help.
var ErrRefused = errors.New("refused")
