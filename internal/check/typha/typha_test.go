package typha

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/check/checktest"
)

func TestSkew(t *testing.T) { checktest.Run(t, Skew()) }
