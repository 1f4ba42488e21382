package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	of "github.com/open-feature/go-sdk/openfeature"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/flags/flagset"
)

// Source is where a flag set comes from.
type Source interface {
	// String names the source, for people.
	String() string
	// Load reads a consistent set: it does not contain changes made during the read.
	Load(ctx context.Context) (*flagset.Set, error)
	// Watch calls changed once it watches, and then whenever the set may have changed, until the context ends.
	// It returns nil if the watch simply ended, an error if it failed.
	Watch(ctx context.Context, changed func()) error
}

// The waits between retries of a broken source.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// Status is the state of a provider.
type Status struct {
	State of.State
	Since time.Time
	// Reason is the error while the state is not READY.
	Reason string
}

// Provider evaluates the flags of a source. It is safe for concurrent use.
type Provider struct {
	follower

	source Source
	set    atomic.Pointer[flagset.Set]
	events chan of.Event

	mu     sync.Mutex // guards the fields below
	status Status
}

var (
	_ of.FeatureProvider          = (*Provider)(nil)
	_ of.ContextAwareStateHandler = (*Provider)(nil)
	_ of.EventHandler             = (*Provider)(nil)
)

// NewProvider makes a provider; it reads nothing before Init.
func NewProvider(source Source) *Provider {
	return &Provider{source: source, events: make(chan of.Event, 16),
		status: Status{State: of.NotReadyState, Since: time.Now()}}
}

// Metadata implements of.FeatureProvider.
func (p *Provider) Metadata() of.Metadata { return of.Metadata{Name: p.source.String()} }

// Hooks implements of.FeatureProvider.
func (p *Provider) Hooks() []of.Hook { return nil }

// EventChannel implements of.EventHandler.
func (p *Provider) EventChannel() <-chan of.Event { return p.events }

// Set returns the current set; nil before the first was read. Evaluate flags that belong together on the same Set.
func (p *Provider) Set() *flagset.Set { return p.set.Load() }

// Status returns the state of the provider.
func (p *Provider) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// Init reads the set and then follows its source. If the first read fails, it returns the error and still follows
// the source: the provider becomes ready once the source works.
func (p *Provider) Init(evaluation of.EvaluationContext) error {
	return p.InitWithContext(context.Background(), evaluation)
}

// InitWithContext is Init with a deadline.
func (p *Provider) InitWithContext(ctx context.Context, _ of.EvaluationContext) error {
	return p.begin(ctx, p.reload, p.follow)
}

// follow watches until the context ends, with a wait after every end of a watch.
func (p *Provider) follow(ctx context.Context) {
	wait := firstRetry
	for {
		err := p.source.Watch(ctx, func() {
			if p.reload(ctx) == nil {
				wait = firstRetry
			}
		})
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			p.stale(err)
		}
		if outage.Sleep(ctx, wait) != nil {
			return
		}
		wait = min(2*wait, lastRetry)
	}
}

// reload reads the set and makes it current, or keeps the last one and records the error.
func (p *Provider) reload(ctx context.Context) error {
	set, err := p.source.Load(ctx)
	if err != nil {
		if ctx.Err() == nil {
			p.stale(err)
		}
		return err
	}
	before := p.set.Load()
	changed := before == nil || before.Digest() != set.Digest()
	if changed {
		p.set.Store(set)
	}
	if p.become(of.ReadyState, "") {
		p.emit(of.ProviderReady, "", nil)
	}
	if changed && before != nil {
		p.emit(of.ProviderConfigChange, "", flagset.Changed(before, set))
	}
	return nil
}

// stale records an error of the source: the state is STALE if there is a set to keep using, else ERROR.
func (p *Provider) stale(err error) {
	state, event := of.StaleState, of.ProviderStale
	if p.set.Load() == nil {
		state, event = of.ErrorState, of.ProviderError
	}
	if p.become(state, err.Error()) {
		p.emit(event, err.Error(), nil)
	}
}

// become sets the state and reports whether it changed.
func (p *Provider) become(state of.State, reason string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status.State == state {
		p.status.Reason = reason
		return false
	}
	p.status = Status{state, time.Now(), reason}
	return true
}

// emit never blocks: if the channel is full, it drops the oldest event.
func (p *Provider) emit(kind of.EventType, message string, changes []string) {
	emit(p.events, of.Event{ProviderName: p.source.String(), EventType: kind,
		ProviderEventDetails: of.ProviderEventDetails{Message: message, FlagChanges: changes}})
}

func emit(events chan of.Event, event of.Event) {
	for {
		select {
		case events <- event:
			return
		default:
		}
		select {
		case <-events:
		default:
		}
	}
}

// BooleanEvaluation implements of.FeatureProvider.
func (p *Provider) BooleanEvaluation(_ context.Context, key string, fallback bool,
	values of.FlattenedContext) of.BoolResolutionDetail {
	return resolve(p, flagset.Boolean, key, fallback, values)
}

// StringEvaluation implements of.FeatureProvider.
func (p *Provider) StringEvaluation(_ context.Context, key string, fallback string,
	values of.FlattenedContext) of.StringResolutionDetail {
	return resolve(p, flagset.String, key, fallback, values)
}

// FloatEvaluation implements of.FeatureProvider.
func (p *Provider) FloatEvaluation(_ context.Context, key string, fallback float64,
	values of.FlattenedContext) of.FloatResolutionDetail {
	return resolve(p, flagset.Float, key, fallback, values)
}

// IntEvaluation implements of.FeatureProvider.
func (p *Provider) IntEvaluation(_ context.Context, key string, fallback int64,
	values of.FlattenedContext) of.IntResolutionDetail {
	return resolve(p, flagset.Integer, key, fallback, values)
}

// ObjectEvaluation implements of.FeatureProvider.
func (p *Provider) ObjectEvaluation(_ context.Context, key string, fallback any,
	values of.FlattenedContext) of.InterfaceResolutionDetail {
	return resolve(p, flagset.Object, key, fallback, values)
}

// Evaluate evaluates a flag of any type; trace, if not nil, is called for every operator.
func (p *Provider) Evaluate(_ context.Context, key string, values map[string]any,
	trace func(flagset.Step)) flagset.Result {
	set := p.set.Load()
	if set == nil {
		return flagset.Result{Key: key, Reason: flagset.Failed, Code: notReady, Message: p.Status().Reason}
	}
	prepared, err := flagset.NewContext(values)
	if err != nil {
		return flagset.Result{Key: key, Reason: flagset.Failed, Code: flagset.InvalidContext, Message: err.Error()}
	}
	return set.Explain(key, prepared, time.Now().Unix(), trace)
}

func resolve[T any](p *Provider, kind flagset.Kind, key string, fallback T,
	values of.FlattenedContext) of.GenericResolutionDetail[T] {
	set := p.set.Load()
	if set == nil {
		return failed(fallback, of.NewProviderNotReadyResolutionError(p.source.String()+": no flag set was read yet"),
			nil)
	}
	context, err := flagset.NewContext(values)
	if err != nil {
		return failed(fallback, of.NewInvalidContextResolutionError(err.Error()), nil)
	}
	return detail(set.Evaluate(key, context, time.Now().Unix()).As(kind), fallback)
}

func failed[T any](fallback T, err of.ResolutionError, metadata of.FlagMetadata) of.GenericResolutionDetail[T] {
	return of.GenericResolutionDetail[T]{Value: fallback,
		ProviderResolutionDetail: of.ProviderResolutionDetail{Reason: of.ErrorReason,
			ResolutionError: err, FlagMetadata: metadata}}
}

// detail converts a result into the SDK's type; the caller gets a copy that it may modify.
func detail[T any](r flagset.Result, fallback T) of.GenericResolutionDetail[T] {
	metadata := of.FlagMetadata(maps.Clone(r.Metadata))
	if r.Code != "" {
		return failed(fallback, resolutionError(r.Code, r.Message), metadata)
	}
	value, ok := copyOf(r.Value).(T)
	if !ok {
		value = fallback
	}
	return of.GenericResolutionDetail[T]{Value: value,
		ProviderResolutionDetail: of.ProviderResolutionDetail{Reason: of.Reason(r.Reason),
			Variant: r.Variant, FlagMetadata: metadata}}
}

func resolutionError(code flagset.Code, message string) of.ResolutionError {
	switch code {
	case flagset.FlagNotFound:
		return of.NewFlagNotFoundResolutionError(message)
	case flagset.ParseError:
		return of.NewParseErrorResolutionError(message)
	case flagset.TypeMismatch:
		return of.NewTypeMismatchResolutionError(message)
	case flagset.InvalidContext:
		return of.NewInvalidContextResolutionError(message)
	}
	return of.NewGeneralResolutionError(message)
}

// copyOf copies objects and lists.
func copyOf(value any) any {
	switch v := value.(type) {
	case map[string]any:
		object := make(map[string]any, len(v))
		for key, element := range v {
			object[key] = copyOf(element)
		}
		return object
	case []any:
		list := slices.Clone(v)
		for i := range list {
			list[i] = copyOf(list[i])
		}
		return list
	}
	return value
}

// errGone says that a watch ended because the watched object no longer exists.
var errGone = errors.New("it no longer exists")

// wrap names the source in an error that does not name it itself.
func wrap(source Source, err error) error {
	var named *flagset.Error
	if err == nil || errors.As(err, &named) {
		return err
	}
	return fmt.Errorf("%s: %w", source, err)
}
