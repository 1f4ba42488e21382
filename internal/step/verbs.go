package step

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Verb is an operation of the agent on its node: what is known of it without doing it. Every verb observes first
// and changes nothing that is already so. Its work is in internal/node.
type Verb struct {
	Name string
	// Args is an empty value of the type that it takes (Action.Args as JSON).
	Args any
	// Back is the verb that takes it back with the same arguments, where the engine may do that without a step's Undo.
	Back string
	// Quiet verbs change nothing that carries traffic, so a step of them needs no gate.
	Quiet bool

	// names judges what the arguments name.
	names func(args json.RawMessage) error
}

var verbs = slices.Concat(looking, choosing, joining, guarding, watching, holding, pinning, retaining, adopting,
	sampling)

// Verbs are all verbs of the agent.
func Verbs() []Verb { return slices.Clone(verbs) }

// VerbNamed finds a verb.
func VerbNamed(name string) (Verb, bool) {
	i := slices.IndexFunc(verbs, func(v Verb) bool { return v.Name == name })
	if i < 0 {
		return Verb{}, false
	}
	return verbs[i], true
}

// takes completes a verb that takes a T, of which names refuses what no network leaves on a node.
func takes[T any](names func(T) error, v Verb) Verb {
	var none T
	v.Args = none
	v.names = func(args json.RawMessage) error {
		var decoded T
		if len(args) == 0 || json.Unmarshal(args, &decoded) != nil {
			return nil // the verb itself refuses what cannot be read
		}
		return names(decoded)
	}
	return v
}

// anything is for arguments that name nothing, or nothing that can be judged away from the node.
func anything[T any](T) error { return nil }

// Takes says whether a verb takes a T.
func Takes[T any](verb string) bool {
	v, _ := VerbNamed(verb)
	_, ok := v.Args.(T)
	return ok
}

// InverseVerb is the verb that takes another back with the same arguments, if there is one.
func InverseVerb(verb string) (string, bool) {
	v, _ := VerbNamed(verb)
	return v.Back, v.Back != ""
}

// Allowed refuses the arguments of a verb that name what no network leaves on a node, or what is not the agent's to
// write. It is asked by the agent before every verb, since anyone who may write tasks could have written it.
func Allowed(verb string, args json.RawMessage) error {
	v, known := VerbNamed(verb)
	if !known {
		return nil // the agent refuses it by its name
	}
	if err := v.names(args); err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return nil
}
