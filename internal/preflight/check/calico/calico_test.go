package calico

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

func TestUnowned(t *testing.T) { checktest.Run(t, Unowned()) }

func TestOperator(t *testing.T) { checktest.Run(t, Operator()) }
