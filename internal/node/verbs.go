package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/theseus-cni/theseus/internal/step"
)

// works are the work of every verb of step.Verbs.
func works() map[string]work {
	return map[string]work{
		step.VerbFacts:      mayTake((*Node).facts),
		step.VerbInventory:  takes((*Node).inventory),
		step.VerbClean:      takes((*Node).clean),
		step.VerbActivate:   takes((*Node).activate),
		step.VerbDeactivate: takes((*Node).deactivate),
		step.VerbJoin:       takes((*Node).join),
		step.VerbPart:       takes((*Node).part),
		step.VerbGuard:      takes((*Node).guard),
		step.VerbRelease:    takes((*Node).release),
		step.VerbDataplane:  takes((*Node).dataplane),
		step.VerbHold:       takes((*Node).hold),
		step.VerbCarried:    takes((*Node).carried),
		step.VerbYield:      takes((*Node).yield),
		step.VerbUnhold:     takes((*Node).unhold),
		step.VerbPin:        takes((*Node).pin),
		step.VerbRouted:     takes((*Node).routed),
		step.VerbFollow:     takes((*Node).follow),
		step.VerbUnpin:      takes((*Node).unpin),
		step.VerbRetain:     takes((*Node).retain),
		step.VerbLetGo:      takes((*Node).letGo),
		step.VerbAdoptable:  takes((*Node).adoptable),
		step.VerbAdopt:      takes((*Node).adopt),
		step.VerbSettle:     takes((*Node).settle),
		step.VerbConnect:    takes((*Node).connect),
	}
}

// work is what a verb does on the node, with arguments of the type args.
type work struct {
	args reflect.Type
	do   func(*Node, context.Context, json.RawMessage) (Answer, error)
}

// takes decodes the arguments of a verb; it refuses to run without any.
func takes[T any](verb func(*Node, context.Context, T) (Answer, error)) work {
	return work{reflect.TypeFor[T](), func(n *Node, ctx context.Context, args json.RawMessage) (Answer, error) {
		var decoded T
		if len(args) == 0 {
			return Answer{}, errors.New("the arguments are missing")
		}
		if err := json.Unmarshal(args, &decoded); err != nil {
			return Answer{}, fmt.Errorf("read the arguments: %w", err)
		}
		return verb(n, ctx, decoded)
	}}
}

// mayTake is for a verb that runs without arguments too.
func mayTake[T any](verb func(*Node, context.Context, T) (Answer, error)) work {
	taking := takes(verb)
	return work{taking.args, func(n *Node, ctx context.Context, args json.RawMessage) (Answer, error) {
		if len(args) == 0 {
			args = json.RawMessage("{}")
		}
		return taking.do(n, ctx, args)
	}}
}
