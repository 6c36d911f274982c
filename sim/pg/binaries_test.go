package pg

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersions(t *testing.T) {
	for banner, want := range map[string]binaries{
		"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)": {version: "15.18", major: 15},
		"postgres (PostgreSQL) 18beta1":                        {version: "18beta1", major: 18},
		"postgres (PostgreSQL) 19devel":                        {version: "19devel", major: 19},
		"postgres (PostgreSQL) 9.6.24":                         {version: "9.6.24", major: 9},
	} {
		dir := t.TempDir()
		for _, name := range []string{"postgres", "initdb"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho '"+banner+"'\n"), 0o755))
		}
		b, err := examine(dir)
		require.NoError(t, err)
		require.Equal(t, want.version, b.version)
		require.Equal(t, want.major, b.major)
		require.Equal(t, want.major < oldest, b.checkVersion() != nil)
		require.NoError(t, os.Remove(filepath.Join(dir, "initdb")))
		_, err = examine(dir)
		require.Error(t, err, "half an installation is none")
	}
}

func TestNewestFirst(t *testing.T) {
	require.Greater(t, firstNumber("/usr/lib/postgresql/14/bin"), firstNumber("/usr/lib/postgresql/9.6/bin"))
}
