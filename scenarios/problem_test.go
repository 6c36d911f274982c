package scenarios

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Each file of testdata/problems is wrong in its own way; the golden text beside it is all that is said about it.
func TestProblems(t *testing.T) {
	files, err := filepath.Glob("testdata/problems/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			src, err := os.ReadFile(file)
			require.NoError(t, err)
			s, err := Parse(name+".yaml", src, Implementations("reference", "no-fence"), Invariants("one-leader", "failover", "probe"))
			var p *Problems
			require.ErrorAs(t, err, &p)
			require.Nil(t, s)
			golden := strings.TrimSuffix(file, ".yaml") + ".txt"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(err.Error()+"\n"), 0o644))
			}
			want, readErr := os.ReadFile(golden)
			require.NoError(t, readErr)
			require.Equal(t, string(want), err.Error()+"\n")
		})
	}
}
