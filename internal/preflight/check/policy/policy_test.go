package policy

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

func TestVerdictChanges(t *testing.T) { checktest.Run(t, VerdictChanges()) }

func TestAgentSharesTables(t *testing.T) { checktest.Run(t, AgentSharesTables()) }

func TestKnownDefect(t *testing.T) { checktest.Run(t, KnownDefect()) }
