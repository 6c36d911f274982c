package pgbouncer

// Installed is the version of the PgBouncer that Start would run, or an *UnavailableError.
func Installed() (version string, err error) {
	_, version, err = find()
	return version, err
}
