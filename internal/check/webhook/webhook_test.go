package webhook

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/check/checktest"
)

func TestDeadlock(t *testing.T) { checktest.Run(t, Deadlock()) }
