# For CDash. The address is that of whoever runs the dashboard: configure with CTEST_SUBMIT_URL in the
# environment, then `ctest -D Experimental` submits there.
set(CTEST_PROJECT_NAME "fp8_sdpa")
set(CTEST_NIGHTLY_START_TIME "01:00:00 UTC")
set(CTEST_SUBMIT_URL "$ENV{CTEST_SUBMIT_URL}")
