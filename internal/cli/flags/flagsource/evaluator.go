package flagsource

import (
	"context"
	"os"

	of "github.com/open-feature/go-sdk/openfeature"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/flags/flagset"
	"github.com/theseus-cni/theseus/internal/flags/provider"
)

// Evaluator is implemented by all of Theseus' providers.
type Evaluator interface {
	of.FeatureProvider
	of.ContextAwareStateHandler
	of.EventHandler
	Evaluate(ctx context.Context, key string, values map[string]any, trace func(flagset.Step)) flagset.Result
}

// TokenVariable is the environment variable with the token for OFREP servers.
const TokenVariable = "THESEUS_FLAGS_TOKEN"

// OpenEvaluator makes and starts the provider of a source; a broken source is reported, but does not stop it.
func OpenEvaluator(ctx context.Context, a *app.App, text string) (Evaluator, func(), error) {
	if IsServer(text) {
		remote, err := provider.OpenRemote(text, os.Getenv(TokenVariable))
		return remote, func() {}, Error(err) // it needs no start
	}
	source, done, err := Open(ctx, a, text)
	if err != nil {
		return nil, nil, err
	}
	provider := provider.NewProvider(source)
	stop := func() {
		provider.Shutdown()
		_ = done() // it was only read
	}
	if err := provider.InitWithContext(ctx, of.EvaluationContext{}); err != nil {
		return provider, stop, Error(err)
	}
	return provider, stop, nil
}
