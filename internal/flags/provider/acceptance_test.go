package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	of "github.com/open-feature/go-sdk/openfeature"
	"github.com/open-feature/go-sdk/openfeature/isolated"
)

// setOf is a flag set of a generation: every flag that says which it is agrees with the others.
func setOf(generation int) string {
	return strings.ReplaceAll(`{
  "metadata": {"team": "net"},
  "$evaluators": {"edge": {"==": [{"var": "pool"}, "edge"]}},
  "flags": {
    "bpf": {"state": "ENABLED", "variants": {"on": true, "off": false}, "defaultVariant": "off", "metadata": {"owner": "jo"},
      "targeting": {"if": [{"$ref": "edge"}, "on"]}},
    "mode": {"state": "ENABLED", "variants": {"ipt": "iptables", "nft": "nftables"}, "defaultVariant": "nft"},
    "mtu": {"state": "ENABLED", "variants": {"low": 1450, "half": 0.5}, "defaultVariant": "low"},
    "ratio": {"state": "ENABLED", "variants": {"half": 0.5}, "defaultVariant": "half"},
    "encap": {"state": "ENABLED", "variants": {"vxlan": {"port": 4789, "ids": [1, 2]}}, "defaultVariant": "vxlan"},
    "off": {"state": "DISABLED", "variants": {"on": true}, "defaultVariant": "on"},
    "open": {"state": "ENABLED", "variants": {"on": true}, "defaultVariant": null},
    "first": {"state": "ENABLED", "variants": {"now": GEN}, "defaultVariant": "now"},
    "last": {"state": "ENABLED", "variants": {"now": GEN}, "defaultVariant": "now"}
  }
}`, "GEN", fmt.Sprint(generation))
}

// invalidSet is refused: a variant that there is not.
const invalidSet = `{"flags": {"first": {"state": "ENABLED", "variants": {"now": 99}, "defaultVariant": "noww"}}}`

// contract is what a provider brings to the acceptance suite. It starts with generation 1.
type contract struct {
	provider of.FeatureProvider
	put      func(t *testing.T, set string)
	// spoil gives the source an invalid set; cut takes the source away.
	spoil, cut fault
	// pair are the flags first and last of one moment.
	pair func(t *testing.T) (first, last any)
}

// fault does harm; undo makes a put possible again, and is nil where it always is.
type fault struct{ do, undo func(t *testing.T) }

// accept runs the suite that every provider passes.
func accept(t *testing.T, c contract) {
	ctx := context.Background()
	api := isolated.NewAPI()
	t.Cleanup(func() { _ = api.Shutdown(context.Background()) })
	if err := api.SetProviderAndWait(ctx, c.provider); err != nil {
		t.Fatal(err)
	}
	client := api.NewClient()
	changes := make(chan of.EventDetails, 1000)
	changed := func(details of.EventDetails) { changes <- details }
	client.AddHandler(of.ProviderConfigChange, &changed)

	t.Run("evaluates", func(t *testing.T) { acceptValues(t, client) })

	t.Run("reloads", func(t *testing.T) {
		c.put(t, setOf(2))
		awaitGeneration(t, client, 2)
		eventually(t, "the change is told, with its flags", func() bool {
			select {
			case details := <-changes:
				return reflect.DeepEqual(details.FlagChanges, []string{"first", "last"})
			default:
				return false
			}
		})
	})

	t.Run("never torn", func(t *testing.T) {
		stop := make(chan struct{})
		torn := make(chan string, 1)
		go func() {
			defer close(torn)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if first, last := c.pair(t); !reflect.DeepEqual(first, last) {
					torn <- fmt.Sprintf("first is of generation %v, last of %v", first, last)
					return
				}
			}
		}()
		for generation := 3; generation <= 12; generation++ {
			c.put(t, setOf(generation))
		}
		awaitGeneration(t, client, 12)
		close(stop)
		if reason, ok := <-torn; ok {
			t.Fatal(reason)
		}
	})

	for name, harm := range map[string]fault{"keeps the last set when the next is invalid": c.spoil,
		"keeps the last set when the source is gone": c.cut} {
		t.Run(name, func(t *testing.T) {
			c.put(t, setOf(20))
			awaitGeneration(t, client, 20)
			harm.do(t)
			eventually(t, "the provider is STALE", func() bool { return client.State() == of.StaleState })
			if got := generation(t, client); got != 20 {
				t.Errorf("generation %d, not the last good one", got)
			}
			if harm.undo != nil {
				harm.undo(t)
			}
			c.put(t, setOf(21))
			eventually(t, "the provider is READY", func() bool { return client.State() == of.ReadyState })
			awaitGeneration(t, client, 21)
		})
	}

	t.Run("starts again", func(t *testing.T) {
		handler := c.provider.(of.StateHandler)
		handler.Shutdown()
		handler.Shutdown()
		if err := handler.Init(of.EvaluationContext{}); err != nil {
			t.Fatal(err)
		}
		c.put(t, setOf(30))
		awaitGeneration(t, client, 30)
	})
}

func acceptValues(t *testing.T, client *of.Client) {
	ctx := context.Background()
	edge := of.NewEvaluationContext("node-1", map[string]any{"pool": "edge"})
	none := of.EvaluationContext{}

	on, err := client.BooleanValueDetails(ctx, "bpf", false, edge)
	is(t, "a targeted flag", []any{on.Value, on.Variant, on.Reason, err},
		[]any{true, "on", of.TargetingMatchReason, nil})
	is(t, "its metadata", pick(on.FlagMetadata, "team", "owner"), []any{"net", "jo"})
	off, err := client.BooleanValueDetails(ctx, "bpf", true, none)
	is(t, "its default", []any{off.Value, off.Variant, off.Reason, err}, []any{false, "off", of.DefaultReason, nil})
	mode, err := client.StringValueDetails(ctx, "mode", "", none)
	is(t, "a string", []any{mode.Value, mode.Variant, mode.Reason, err}, []any{"nftables", "nft", of.StaticReason, nil})
	mtu, err := client.IntValue(ctx, "mtu", 0, none)
	is(t, "an integer", []any{mtu, err}, []any{int64(1450), nil})
	ratio, err := client.FloatValue(ctx, "ratio", 0, none)
	is(t, "a float", []any{ratio, err}, []any{0.5, nil})
	encap, err := client.ObjectValue(ctx, "encap", nil, none)
	is(t, "an object", []any{encap, err}, []any{map[string]any{"port": 4789.0, "ids": []any{1.0, 2.0}}, nil})
	if object, ok := encap.(map[string]any); ok {
		object["ids"].([]any)[0] = "mine"
		again, _ := client.ObjectValue(ctx, "encap", nil, none)
		is(t, "an object is a copy", again, map[string]any{"port": 4789.0, "ids": []any{1.0, 2.0}})
	}
	disabled, err := client.BooleanValueDetails(ctx, "off", true, none)
	is(t, "a disabled flag", []any{disabled.Value, disabled.Reason, err}, []any{true, of.DisabledReason, nil})
	open, err := client.BooleanValueDetails(ctx, "open", true, none)
	is(t, "a flag without default", []any{open.Value, open.Reason, err}, []any{true, of.DefaultReason, nil})
	missing, _ := client.BooleanValueDetails(ctx, "nothing", true, none)
	is(t, "a missing flag", []any{missing.Value, missing.ErrorCode, missing.Reason},
		[]any{true, of.FlagNotFoundCode, of.ErrorReason})
	wrong, _ := client.IntValueDetails(ctx, "mode", 7, none)
	is(t, "a wrong type", []any{wrong.Value, wrong.ErrorCode}, []any{int64(7), of.TypeMismatchCode})
	lossy, _ := client.IntValueDetails(ctx, "ratio", 7, none)
	is(t, "a fraction is no integer", []any{lossy.Value, lossy.ErrorCode}, []any{int64(7), of.TypeMismatchCode})
}

func is(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v, not %v", what, got, want)
	}
}

func pick(values map[string]any, keys ...string) (picked []any) {
	for _, key := range keys {
		picked = append(picked, values[key])
	}
	return picked
}

func generation(t *testing.T, client *of.Client) int64 {
	t.Helper()
	value, err := client.IntValue(context.Background(), "first", -1, of.EvaluationContext{})
	if err != nil {
		t.Errorf("while waiting: %v", err)
	}
	return value
}

func awaitGeneration(t *testing.T, client *of.Client, want int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("generation %d is in force", want), func() bool { return generation(t, client) == want })
}

// pairOf reads two flags of one set.
func pairOf(p *Provider) func(*testing.T) (any, any) {
	return func(t *testing.T) (any, any) {
		set := p.Set()
		values := func(key string) any {
			variants, name, _ := set.Variants(key)
			return variants[name]
		}
		return values("first"), values("last")
	}
}

// changesTo are the edits that make a database hold a set.
func changesTo(t *testing.T, d *Database, set string) []Edit {
	t.Helper()
	versions := map[[2]string]int64{}
	items, err := d.Items(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var changes []Edit
	parts := map[string]map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(set), &parts); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{"flags": FlagItem, "$evaluators": EvaluatorItem, "metadata": MetadataItem}
	for _, item := range items {
		versions[[2]string{item.Kind, item.Name}] = item.Version
	}
	for section, values := range parts {
		for name, value := range values {
			kind := kinds[section]
			changes = append(changes, Edit{Kind: kind, Name: name, Value: string(value),
				Version: versions[[2]string{kind, name}], Who: "test"})
		}
	}
	return changes
}
