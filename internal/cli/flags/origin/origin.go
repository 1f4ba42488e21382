package origin

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	of "github.com/open-feature/go-sdk/openfeature"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/flags/flagsource"
	"github.com/theseus-cni/theseus/internal/cli/usage"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/flags/flagset"
	"github.com/theseus-cni/theseus/internal/flags/provider"
	"github.com/theseus-cni/theseus/internal/flags/setting"
	"github.com/theseus-cni/theseus/internal/run"
)

// FlagsOf are the keys of flags that control a setting.
func FlagsOf(bound []setting.Bound) []string {
	var keys []string
	for _, b := range bound {
		keys = append(keys, b.Flag)
	}
	return keys
}

// Decide evaluates one flag for every node, all in one state of its source: the origin of a rollout.
func Decide(ctx context.Context, a *app.App, snapshot *cluster.Snapshot, source,
	key string) (plan.Flags, *plan.Decided, error) {
	fleet := setting.Read(snapshot, nil)
	frozen := plan.Flags{}
	decided := &plan.Decided{Origin: plan.Origin{Source: lasting(source)}, Values: map[string]string{}}
	var results []*flagset.Result
	var err error
	if flagsource.IsServer(source) {
		frozen.Algorithm = "that of the server"
		results, err = askServer(ctx, a, snapshot, source, key)
	} else {
		var set *flagset.Set
		if set, err = flagsource.Load(ctx, a, source); err != nil {
			return frozen, nil, err
		}
		if key, err = meant(fleet.Catalogue(), set, source, key); err != nil {
			return frozen, nil, err
		}
		decided.Digest, frozen.Digest = set.Digest(), set.Digest()
		results = fleet.Evaluate(set, []string{key}, time.Now().Unix(), nil).Of(key)
	}
	if err != nil {
		return frozen, nil, err
	}
	decided.Flag, decided.Knob = key, key
	values := map[string][]string{}
	for n, r := range results {
		node := fleet.Nodes()[n]
		if r.Code != "" {
			return frozen, nil, exit.Fail(exit.Failed, "theseus flags eval "+key+" --source "+decided.Source+" --node "+
				node+" --explain", "%s cannot evaluate the flag for %s: %s", source, node, r.Message)
		}
		if name, given := r.Metadata["knob"].(string); given {
			decided.Knob = name
		}
		if !r.Default() {
			decided.Values[node] = setting.ValueText(r.Value)
		}
		shown := flagsource.Shown(results, n)
		values[shown] = append(values[shown], node)
	}
	if _, err := fleet.Catalogue().Find(decided.Knob); err != nil {
		return frozen, nil, exit.Fail(exit.Failed, "give the flag the metadata knob: NAME; "+exit.HintOf(err),
			"the flag %s of %s controls no setting of the network: %w", key, source, err)
	}
	frozen.Values = map[string]map[string][]string{key: values}
	return frozen, decided, nil
}

// meant is the key of the flag to roll out: the named one, or the only one that controls a setting of the network.
func meant(catalogue *setting.Catalogue, set *flagset.Set, source, key string) (string, error) {
	bound, found := catalogue.Bind(set)
	keys := FlagsOf(bound)
	switch {
	case key == "" && len(keys) == 1:
		key = keys[0]
	case key == "" && len(keys) == 0:
		return "", exit.Fail(exit.Failed, "give one the metadata knob: NAME, such as nftablesMode; theseus flags "+
			"explain lists the names", "no flag of %s controls a setting of the network", source)
	case key == "":
		return "", exit.Fail(exit.Usage, "name one with --flag", "%d flags of %s control a setting of the network: %s",
			len(keys), source, strings.Join(keys, ", "))
	case !slices.Contains(set.Keys(), key):
		return "", exit.Fail(exit.Failed, "it has "+usage.Few(set.Keys()), "there is no flag %q in %s", key, source)
	}
	for _, f := range found {
		if f.Severity == finding.Block && f.Subject.Name == key {
			return "", exit.Fail(exit.Failed, "theseus flags lint "+source,
				"the flag %s of %s: %s", key, source, f.Message)
		}
	}
	return key, nil
}

// lasting is a source as it is stored in a plan: independent of the current folder, and without a password.
func lasting(source string) string {
	scheme, rest, _ := strings.Cut(source, ":")
	switch scheme {
	case "k8s":
		return source
	case "http", "https", "postgres", "postgresql":
		address, err := url.Parse(source)
		if err != nil {
			return scheme + ":" // text that cannot be parsed may contain a password
		}
		if address.User != nil {
			address.User = url.User(address.User.Username())
		}
		query := address.Query()
		query.Del("password")
		address.RawQuery = query.Encode()
		return address.String()
	case "sqlite":
		return "sqlite:" + absolute(rest)
	}
	return absolute(source)
}

func absolute(path string) string {
	if whole, err := filepath.Abs(path); err == nil {
		return whole
	}
	return path
}

// askServer asks a server for a flag on every node, twice: if both rounds agree, they saw one state of its flags.
func askServer(ctx context.Context, a *app.App, snapshot *cluster.Snapshot, source,
	key string) ([]*flagset.Result, error) {
	if key == "" {
		return nil, exit.Fail(exit.Usage, "name it with --flag",
			"a server does not list which of its flags control a setting of the network")
	}
	server, stop, err := flagsource.OpenEvaluator(ctx, a, source)
	if err != nil {
		return nil, err
	}
	defer stop()
	const askedAtOnce = 8 // of somebody's server
	round := func() []*flagset.Result {
		results := make([]*flagset.Result, len(snapshot.Nodes))
		var calls []func()
		for i := range snapshot.Nodes {
			calls = append(calls, func() {
				r := server.Evaluate(ctx, key, flagset.NodeValues(&snapshot.Nodes[i]), nil)
				if r.Reason == flagset.Reason(provider.StaleReason) {
					r.Code, r.Message = flagset.General,
						"the server is unavailable, or its own source is STALE: this is an old answer"
				}
				results[i] = &r
			})
		}
		run.Together(askedAtOnce)(calls)
		return results
	}
	const rounds = 5
	last := round()
	for range rounds {
		now := round()
		if slices.EqualFunc(last, now, func(a, b *flagset.Result) bool {
			return a.Code == b.Code && a.Message == b.Message && a.Default() == b.Default() &&
				setting.ValueText(a.Value) == setting.ValueText(b.Value)
		}) {
			return now, nil
		}
		last = now
	}
	return nil, exit.Fail(exit.Failed, "plan again when the flags are no longer being edited",
		"%s gives different answers each time", source)
}

// Follow watches the source of the flag that a plan was made from, until it is stopped. The run does not depend on it:
// the flag's values are stored in the plan.
func Follow(ctx context.Context, a *app.App, origin *plan.Origin, say func(string)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f := &follower{app: a, origin: origin, say: say}
		for f.follow(ctx); ctx.Err() == nil; f.follow(ctx) {
			if run.Clock.Sleep(run.Clock{}, ctx, againAfter) != nil {
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// againAfter is the time until a source that cannot be opened is tried again.
const againAfter = 2 * time.Second

type follower struct {
	app    *app.App
	origin *plan.Origin
	say    func(string)
	// stale and other are true after a warning that the source is STALE, or that its flags are not the plan's.
	stale, other bool
}

const goesOn = "; the run continues with the values in the plan"

// bad warns once that the source is STALE.
func (f *follower) bad(reason string) {
	if !f.stale {
		f.say(fmt.Sprintf("flags of %s: STALE: %s%s", f.origin.Source, exit.OneLine(reason), goesOn))
	}
	f.stale = true
}

// follow watches the source until the context ends; it returns earlier when the source cannot be opened.
func (f *follower) follow(ctx context.Context) {
	if file, ok := strings.CutPrefix(f.origin.Source, "sqlite:"); ok { // opening would create it
		if _, err := os.Stat(file); err != nil {
			f.bad(err.Error())
			return
		}
	}
	provider, stop, err := flagsource.OpenEvaluator(ctx, f.app, f.origin.Source)
	if provider == nil {
		f.bad(err.Error())
		return
	}
	defer stop()
	if flagsource.IsServer(f.origin.Source) {
		err = provider.InitWithContext(ctx, of.EvaluationContext{})
		defer provider.ShutdownWithContext(ctx) //nolint:errcheck // it only ends the watch
	}
	if err != nil && ctx.Err() == nil {
		f.bad(err.Error())
	}
	f.compare(provider)
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-provider.EventChannel():
			f.tell(event, provider)
		}
	}
}

// compare warns once if the flags of a source that was just read are not those of the plan.
func (f *follower) compare(source flagsource.Evaluator) {
	p, ok := source.(*provider.Provider)
	if !ok || p.Set() == nil {
		return
	}
	if p.Set().Digest() != f.origin.Digest && !f.other {
		f.other = true
		f.say(fmt.Sprintf("flags of %s: they have changed since the plan was made%s", f.origin.Source, goesOn))
	}
}

func (f *follower) tell(event of.Event, provider flagsource.Evaluator) {
	switch event.EventType {
	case of.ProviderReady:
		if f.stale {
			f.say("flags of " + f.origin.Source + ": READY again")
			f.compare(provider)
		}
		f.stale = false
	case of.ProviderConfigChange:
		if slices.Contains(event.FlagChanges, f.origin.Flag) {
			f.say(fmt.Sprintf("flags of %s: %s was changed%s: the new values need a new plan",
				f.origin.Source, f.origin.Flag, goesOn))
		}
	default:
		f.bad(event.Message)
	}
}
