package webhook

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

func TestDeadlock(t *testing.T) { checktest.Run(t, Deadlock()) }
